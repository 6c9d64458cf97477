/*
 * pop_batch.c
 *		Claims a cursor, reads its batch, leases it.
 *
 * What can be seen without a lock is looked at first: a pop in vain writes
 * nothing.  The claim never waits.
 *
 * rows_statement() takes a new snapshot, as the next statement of SQL would do:
 *
 *	- for the look itself;
 *	- after a first contact, which has added the cursor: only a later snapshot
 *	  shows it;
 *	- after the claim.  row_lock() fetches the latest version of the cursor,
 *	  which its last holder may have moved since the look, past all that the
 *	  look's snapshot shows.  The new one shows what that holder saw and what was
 *	  pushed since, so "no segment behind the cursor" is true of the cursor that
 *	  is held.
 */
#include "postgres.h"

#include "access/genam.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "pop.h"
#include "segment_sql.h"
#include "work_notes.h"

static const PopLook nothing = {.outcome = POP_NOTHING};

static PopLook
later(TimestampTz until)
{
	return (PopLook){.outcome = POP_LATER, .until = until};
}

static PopLook
contended(void)
{
	return later(GetCurrentTimestamp() + CONTENTION_PAUSE_US);
}

static int64
offset_of(LogTable *table, TupleTableSlot *row, int column)
{
	return DatumGetInt64(row_value(table, row, column));
}

static bool
find_partition(Pop *pop, const pg_uuid_t *id)
{
	PopCall *call = pop->call;
	ScanKeyData key;

	row_key(&key, call->partitions, PARTITIONS_BY_ID, 1, BTEqualStrategyNumber, UUIDPGetDatum(id));
	return row_find(call->partitions, PARTITIONS_BY_ID, &key, 1, call->partition) &&
		   memcmp(DatumGetUUIDP(row_value(call->partitions, call->partition, PARTITIONS_QUEUE_ID)),
				  &pop->request.queue_id, sizeof(pg_uuid_t)) == 0;
}

static void
cursor_keys(Pop *pop, const pg_uuid_t *partition_id, ScanKeyData keys[2])
{
	LogTable *consumers = pop->call->consumers;

	row_key(&keys[0], consumers, CONSUMERS_BY_GROUP, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(partition_id));
	row_key(&keys[1], consumers, CONSUMERS_BY_GROUP, 2, BTEqualStrategyNumber,
			PointerGetDatum(pop->request.group));
}

static int64
committed(const Pop *pop)
{
	return offset_of(pop->call->consumers, pop->call->cursor, CONSUMERS_COMMITTED);
}

/* Whether the cursor is leased, and until when. */
static bool
is_leased(const Pop *pop, TimestampTz *until)
{
	PopCall *call = pop->call;
	bool no_worker;
	bool no_end;

	row_get(call->consumers, call->cursor, CONSUMERS_WORKER_ID, &no_worker);
	*until = DatumGetTimestampTz(
		row_get(call->consumers, call->cursor, CONSUMERS_LEASE_EXPIRES_AT, &no_end));
	return !no_worker && !no_end && *until >= GetCurrentTimestamp();
}

static void
segment_keys(Pop *pop, const pg_uuid_t *partition_id, StrategyNumber strategy, int64 base,
			 ScanKeyData keys[2])
{
	LogTable *segments = pop->call->segments;

	row_key(&keys[0], segments, SEGMENTS_BY_OFFSET, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(partition_id));
	row_key(&keys[1], segments, SEGMENTS_BY_OFFSET, 2, strategy, Int64GetDatum(base));
}

/* The segment that begins last before an offset, if it covers that. */
static bool
find_covering(Pop *pop, const pg_uuid_t *partition_id, int64 wanted)
{
	PopCall *call = pop->call;
	ScanKeyData keys[2];
	IndexScanDesc scan;
	bool found;

	segment_keys(pop, partition_id, BTLessStrategyNumber, wanted, keys);
	scan = row_scan(call->segments, SEGMENTS_BY_OFFSET, keys, 2);
	found = index_getnext_slot(scan, BackwardScanDirection, call->covering);
	index_endscan(scan);
	return found && offset_of(call->segments, call->covering, SEGMENTS_END_OFFSET) >= wanted;
}

/*
 * The segment that covers an offset, else the next live one.  Mostly the
 * offset is the first of a segment, since the batch before ended with one.
 */
static bool
find_head(Pop *pop, const pg_uuid_t *partition_id, int64 wanted)
{
	PopCall *call = pop->call;
	ScanKeyData keys[2];
	bool found;

	segment_keys(pop, partition_id, BTGreaterEqualStrategyNumber, wanted, keys);
	found = row_find(call->segments, SEGMENTS_BY_OFFSET, keys, 2, call->segment);
	if (found && offset_of(call->segments, call->segment, SEGMENTS_BASE_OFFSET) == wanted)
		return true;
	if (!find_covering(pop, partition_id, wanted))
		return found;
	ExecCopySlot(call->segment, call->covering);
	return true;
}

/* Whether what begins with the segment is not to be delivered yet. */
static bool
is_deferred(Pop *pop, TimestampTz instant, PopLook *look)
{
	const PopRequest *request = &pop->request;
	PopCall *call = pop->call;
	int64 base = offset_of(call->segments, call->segment, SEGMENTS_BASE_OFFSET);
	int64 last = offset_of(call->partitions, call->partition, PARTITIONS_LAST_OFFSET);
	TimestampTz created =
		DatumGetTimestampTz(row_value(call->segments, call->segment, SEGMENTS_CREATED_AT));

	if (request->hold > request->delay &&
		last - Max(base, committed(pop) + 1) + 1 < Min(request->batch, 100))
		*look = (PopLook){.outcome = POP_HELD, .until = created + request->hold};
	else if (request->delay > 0)
		*look = later(created + request->delay);
	else
		return false; /* ready, whatever the stamp: the clock may have stepped back */
	return look->until > instant;
}

static void
put_row(Pop *pop, Datum *values, bool *nulls)
{
	values[POP_ENTRY] = Int32GetDatum(pop->request.entry);
	nulls[POP_ENTRY] = false;
	tuplestore_putvalues(pop->call->rows, pop->call->desc, values, nulls);
}

/* Answers with the slice of the segment from "first" to "last"; returns the segment's size. */
static int64
put_slice(Pop *pop, int64 first, int64 last, int attempt)
{
	PopCall *call = pop->call;
	Datum values[POP_COLUMNS];
	bool nulls[POP_COLUMNS];
	bytea *blob = DatumGetByteaPP(row_value(call->segments, call->segment, SEGMENTS_BLOB));
	int64 base = DatumGetInt64(row_value(call->segments, call->segment, SEGMENTS_BASE_OFFSET));
	int64 end = DatumGetInt64(row_value(call->segments, call->segment, SEGMENTS_END_OFFSET));
	int64 size = segment_bytes(blob, end - base + 1);

	memset(nulls, true, sizeof(nulls));
	memset(nulls, false, POP_RETRY_AT * sizeof(bool));
	values[POP_STATUS] = CStringGetTextDatum("segment");
	values[POP_PARTITION_ID] = row_value(call->partitions, call->partition, PARTITIONS_ID);
	values[POP_PARTITION] = row_value(call->partitions, call->partition, PARTITIONS_NAME);
	values[POP_BASE_OFFSET] = Int64GetDatum(base);
	values[POP_END_OFFSET] = Int64GetDatum(end);
	values[POP_FIRST_OFFSET] = Int64GetDatum(first);
	values[POP_LAST_OFFSET] = Int64GetDatum(last);
	values[POP_CREATED_AT] = row_value(call->segments, call->segment, SEGMENTS_CREATED_AT);
	values[POP_ATTEMPT] = Int32GetDatum(attempt);
	values[POP_BLOB] = PointerGetDatum(blob);
	put_row(pop, values, nulls);
	pfree(DatumGetPointer(values[POP_STATUS]));
	if ((Pointer) blob != DatumGetPointer(row_value(call->segments, call->segment, SEGMENTS_BLOB)))
		pfree(blob);
	return size;
}

/* How often in a row a batch with this first offset has been delivered, with this time. */
static int
attempt_of(const Pop *pop, int64 first)
{
	PopCall *call = pop->call;
	bool isnull;
	int64 before =
		DatumGetInt64(row_get(call->consumers, call->cursor, CONSUMERS_ATTEMPT_OFFSET, &isnull));

	if (isnull || before != first)
		return 1;
	return DatumGetInt32(row_value(call->consumers, call->cursor, CONSUMERS_ATTEMPT_COUNT)) + 1;
}

typedef struct Batch
{
	int64 first;
	int64 last;
	int64 messages; /* fewer than the offsets in between where segments are gone */
	int attempt;
} Batch;

static bool
has_room(const Pop *pop)
{
	return pop->budget > 0 && pop->room > 0;
}

static void
count_slice(Pop *pop, int64 messages, TimestampTz instant)
{
	PopCall *call = pop->call;
	TimestampTz created =
		DatumGetTimestampTz(row_value(call->segments, call->segment, SEGMENTS_CREATED_AT));
	int64 age = Max(instant - created, 0) / 1000;

	pop->count.messages += messages;
	pop->count.lag += messages * age;
	pop->count.longest = Max(pop->count.longest, age);
}

/* Adds the segment to the batch as far as the budget goes. */
static void
add_segment(Pop *pop, Batch *batch, TimestampTz instant)
{
	PopCall *call = pop->call;
	int64 base = offset_of(call->segments, call->segment, SEGMENTS_BASE_OFFSET);
	int64 end = offset_of(call->segments, call->segment, SEGMENTS_END_OFFSET);
	int64 first = Max(base, committed(pop) + 1);
	int64 last = Min(end, first + pop->budget - 1);

	if (batch->messages == 0)
	{
		batch->first = first;
		batch->attempt = pop->request.auto_ack ? 1 : attempt_of(pop, first);
	}
	pop->room -= put_slice(pop, first, last, batch->attempt);
	pop->budget -= last - first + 1;
	batch->messages += last - first + 1;
	batch->last = last;
	count_slice(pop, last - first + 1, instant);
}

/* Reads from the head, which is in the slot, as much as fits and is old enough. */
static Batch
read_batch(Pop *pop, const pg_uuid_t *partition_id, TimestampTz instant)
{
	PopCall *call = pop->call;
	Batch batch = {0};
	ScanKeyData keys[2];
	IndexScanDesc scan;

	add_segment(pop, &batch, instant);
	if (!has_room(pop) ||
		batch.last >= offset_of(call->partitions, call->partition, PARTITIONS_LAST_OFFSET))
		return batch;
	segment_keys(pop, partition_id, BTGreaterStrategyNumber, batch.last, keys);
	scan = row_scan(call->segments, SEGMENTS_BY_OFFSET, keys, 2);
	while (has_room(pop) && index_getnext_slot(scan, ForwardScanDirection, call->segment))
	{
		TimestampTz created =
			DatumGetTimestampTz(row_value(call->segments, call->segment, SEGMENTS_CREATED_AT));

		if (pop->request.delay > 0 && created > instant - pop->request.delay)
			break;
		add_segment(pop, &batch, instant);
	}
	index_endscan(scan);
	return batch;
}

/* Begins the new version of the cursor: no lease. */
static void
draft_cursor(Pop *pop)
{
	LogTable *consumers = pop->call->consumers;

	row_draft(consumers, pop->call->cursor);
	row_set_null(consumers, CONSUMERS_BATCH_END);
	row_set_null(consumers, CONSUMERS_WORKER_ID);
	row_set_null(consumers, CONSUMERS_LEASE_EXPIRES_AT);
}

/* The cursor of a lease stays where it is, also when the batch starts behind a gap. */
static void
lease_batch(Pop *pop, const pg_uuid_t *partition_id, const Batch *batch, TimestampTz instant,
			bool taken)
{
	const PopRequest *request = &pop->request;
	LogTable *consumers = pop->call->consumers;
	TimestampTz until = instant + request->lease;

	row_draft(consumers, pop->call->cursor);
	row_set(consumers, CONSUMERS_BATCH_END, Int64GetDatum(batch->last));
	row_set(consumers, CONSUMERS_WORKER_ID, UUIDPGetDatum(&request->worker_id));
	row_set(consumers, CONSUMERS_LEASE_ACQUIRED_AT, TimestampTzGetDatum(instant));
	row_set(consumers, CONSUMERS_LEASE_EXPIRES_AT, TimestampTzGetDatum(until));
	row_set(consumers, CONSUMERS_ATTEMPT_OFFSET, Int64GetDatum(batch->first));
	row_set(consumers, CONSUMERS_ATTEMPT_COUNT, Int32GetDatum(batch->attempt));
	row_update(consumers, pop->call->cursor);
	pending_lease(partition_id, request->group, until, &request->worker_id);
	note_leased(&request->queue_id, request->group_number, partition_id, until, taken);
	pop->count.leases++;
}

static void
pass_batch(Pop *pop, const pg_uuid_t *partition_id, const Batch *batch, bool taken)
{
	const PopRequest *request = &pop->request;
	PopCall *call = pop->call;
	int64 consumed = offset_of(call->consumers, call->cursor, CONSUMERS_TOTAL_CONSUMED);
	bool more = batch->last < offset_of(call->partitions, call->partition, PARTITIONS_LAST_OFFSET);

	draft_cursor(pop);
	row_set(call->consumers, CONSUMERS_COMMITTED, Int64GetDatum(batch->last));
	row_set(call->consumers, CONSUMERS_TOTAL_CONSUMED, Int64GetDatum(consumed + batch->messages));
	row_update(call->consumers, call->cursor);
	pop->count.passed += batch->messages;
	note_passed(&request->queue_id, request->group_number, partition_id, more, taken);
}

/*
 * Moves a claimed cursor past a backlog of which retention has removed every
 * segment.  That there is none, and the last offset, come from one snapshot.
 */
static void
seal(Pop *pop, const pg_uuid_t *partition_id)
{
	PopCall *call = pop->call;
	ScanKeyData key;
	int64 last;

	row_key(&key, call->segments, SEGMENTS_BY_OFFSET, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(partition_id));
	if (!find_partition(pop, partition_id) ||
		row_find(call->segments, SEGMENTS_BY_OFFSET, &key, 1, call->segment))
		return;
	last = offset_of(call->partitions, call->partition, PARTITIONS_LAST_OFFSET);
	if (committed(pop) >= last)
		return;
	draft_cursor(pop);
	row_set(call->consumers, CONSUMERS_COMMITTED, Int64GetDatum(last));
	row_update(call->consumers, call->cursor);
}

/* Delivers from a partition whose cursor is claimed. */
static PopLook
serve(Pop *pop, const pg_uuid_t *partition_id, bool taken)
{
	TimestampTz instant = GetCurrentTimestamp();
	PopLook look;
	Batch batch;

	rows_statement();
	if (!find_head(pop, partition_id, committed(pop) + 1))
	{
		seal(pop, partition_id);
		return nothing;
	}
	if (is_deferred(pop, instant, &look))
		return look;
	batch = read_batch(pop, partition_id, instant);
	if (pop->request.auto_ack)
		pass_batch(pop, partition_id, &batch, taken);
	else
		lease_batch(pop, partition_id, &batch, instant, taken);
	pop->places--;
	return (PopLook){.outcome = POP_SERVED};
}

/* The group's cursor, which a first contact may have to add; false: not now. */
static bool
find_cursor(Pop *pop, const pg_uuid_t *partition_id, ScanKeyData keys[2])
{
	PopCall *call = pop->call;

	if (row_find(call->consumers, CONSUMERS_BY_GROUP, keys, 2, call->cursor))
		return true;
	if (!pop_first_contact(&pop->request, partition_id))
		return false;
	rows_statement();
	return find_partition(pop, partition_id) &&
		   row_find(call->consumers, CONSUMERS_BY_GROUP, keys, 2, call->cursor);
}

PopLook
pop_look(Pop *pop, const pg_uuid_t *partition_id, bool taken)
{
	const PopRequest *request = &pop->request;
	PopCall *call = pop->call;
	ScanKeyData keys[2];
	TimestampTz until;
	PopLook look;
	int64 last;

	rows_statement();
	if (!find_partition(pop, partition_id))
		return nothing;
	last = offset_of(call->partitions, call->partition, PARTITIONS_LAST_OFFSET);
	if (last < 0 && !request->pinned)
		return nothing; /* and no need for a cursor */
	cursor_keys(pop, partition_id, keys);
	if (!find_cursor(pop, partition_id, keys))
		return contended();
	if (last <= committed(pop))
		return nothing;
	if (is_leased(pop, &until))
		return later(until);
	if ((request->delay > 0 || request->hold > 0) &&
		find_head(pop, partition_id, committed(pop) + 1) &&
		is_deferred(pop, GetCurrentTimestamp(), &look))
		return look;
	if (row_lock(call->consumers, CONSUMERS_BY_GROUP, keys, 2, call->cursor,
				 LockTupleNoKeyExclusive, LockWaitSkip) != ROW_LOCKED)
		return contended();
	if (is_leased(pop, &until))
		return later(until);
	return serve(pop, partition_id, taken);
}
