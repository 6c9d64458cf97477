/*
 * push.c
 *		Push: segments get their offsets, their stamp and their place in the log.
 *
 * The first statement of a call finds the partitions and locks their rows,
 * ascending by id.  FOR NO KEY UPDATE, because a first contact inserts a
 * cursor and needs FOR KEY SHARE on its partition.  The second has a snapshot
 * that is younger than the locks: it sees what became of the queues, and the
 * hashes that the last holders committed.  It writes one segment per
 * partition; each further one takes a statement of its own, so that it sees
 * the hashes of those before it.
 *
 * The locked partition is what segments and rows of the due list refer to.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "arrays.h"
#include "dedup_window.h"
#include "duplicates.h"
#include "function.h"
#include "guard.h"
#include "gucs.h"
#include "hashindex.h"
#include "names.h"
#include "pending.h"
#include "protocol.h"
#include "rows.h"
#include "segment.h"
#include "segment_sql.h"

QUEEN_FUNCTION(log_push);

/*
 * How far last_write_at may be behind.  It is indexed, and a push that leaves it
 * alone is a HOT update; searches of sql/pop.sql allow for it.
 */
#define WRITE_TIME_SPACING (10 * USECS_PER_SEC)

/* Arguments of log_push(). */
enum
{
	ARG_TENANT,
	ARG_QUEUE,
	ARG_PARTITION,
	ARG_COUNT,
	ARG_HASHES,
	ARG_BLOB,
	ARG_ARRAYS,
	ARG_WAIT = ARG_ARRAYS
};

typedef enum PushStatus
{
	PUSH_QUEUED,
	PUSH_DUPLICATE,
	PUSH_BUSY,
	PUSH_MISSING,
	PUSH_CLEAR,
	PUSH_INVALID
} PushStatus;

static const char *const status_names[] = {"queued",  "duplicate", "busy",
										   "missing", "clear",	   "invalid"};

typedef struct PushPartition
{
	pg_uuid_t id;
	pg_uuid_t queue_id;
	ItemPointerData tid; /* where it was found */
	RowLock lock;
	TupleTableSlot *row; /* its latest version, when it is locked */
	int written;		 /* the statement that wrote it last, by its number */

	/* of the queue, after the lock */
	bool exists;
	bool encrypted;
	int32 dedup_seconds;
} PushPartition;

typedef struct PushEntry
{
	const char *error; /* why it is invalid */
	PushPartition *partition;
	pg_uuid_t partition_id;
	bool found;
	int32 frames;
	const uint8 *hashes;
	bytea *blob;

	/* the verdict */
	PushStatus status;
	int64 base_offset;
	TimestampTz created_at;
	Duplicates duplicates;
	bool enlist; /* the first of a log, or of a sidecar, that was empty */
} PushEntry;

typedef struct Push
{
	ArrayArg args[ARG_ARRAYS];
	int n;
	PushEntry *entries;
	int npartitions;
	PushPartition *partitions; /* ascending by id */
	int statement;

	LogTable *queues_table;
	LogTable *partitions_table;
	LogTable *segments_table;
	LogTable *txns_table;
	List *rows; /* the partitions' slots */
} Push;

/* --- the entries ---------------------------------------------------------- */

static Span
span_of_varlena(const void *value)
{
	return (Span){VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

static bool
all_distinct(const uint8 *hashes, int n)
{
	void *memory = palloc0(hash_index_size(n));
	HashIndex index;
	bool distinct = true;

	hash_index_init(&index, n, memory);
	for (int i = 0; i < n && distinct; i++)
		distinct = hash_index_add(&index, hashes + (Size) i * HASH_SIZE, i) < 0;
	pfree(memory);
	return distinct;
}

/* Sets what the entry holds; returns why it is invalid, or NULL. */
static const char *
read_entry(Push *push, int i, PushEntry *entry)
{
	struct varlena *values[ARG_ARRAYS] = {NULL};
	Size hashes_len;

	for (int arg = 0; arg < ARG_ARRAYS; arg++)
		if (arg != ARG_TENANT && arg != ARG_COUNT && !push->args[arg].nulls[i])
			values[arg] = PG_DETOAST_DATUM_PACKED(push->args[arg].values[i]);
	if (push->args[ARG_TENANT].nulls[i])
		return "tenant is missing";
	if (values[ARG_QUEUE] == NULL || queue_name_check(span_of_varlena(values[ARG_QUEUE])) != NULL)
		return "queue is missing or not a valid name";
	if (values[ARG_PARTITION] == NULL || name_check(span_of_varlena(values[ARG_PARTITION])) != NULL)
		return "partition is missing or not a valid name";
	entry->frames =
		push->args[ARG_COUNT].nulls[i] ? 0 : DatumGetInt32(push->args[ARG_COUNT].values[i]);
	if (entry->frames < 1 || entry->frames > SEGMENT_MAX_FRAMES)
		return "count must be between 1 and 10000";
	hashes_len = values[ARG_HASHES] != NULL ? VARSIZE_ANY_EXHDR(values[ARG_HASHES]) : 0;
	if (hashes_len != (Size) entry->frames * HASH_SIZE)
		return "hashes must be 16 bytes per message";
	entry->hashes = (const uint8 *) VARDATA_ANY(values[ARG_HASHES]);
	if (values[ARG_BLOB] == NULL || VARSIZE_ANY_EXHDR(values[ARG_BLOB]) == 0)
		return "blob is empty";
	entry->blob = values[ARG_BLOB];
	if (!all_distinct(entry->hashes, entry->frames))
		return "two messages of one segment have the same transaction id";
	return NULL;
}

static void
read_entries(Push *push, FunctionCallInfo fcinfo)
{
	push->n = array_args(fcinfo, ARG_ARRAYS, push->args);
	push->entries = palloc0(push->n * sizeof(PushEntry));
	for (int i = 0; i < push->n; i++)
		push->entries[i].error = read_entry(push, i, &push->entries[i]);
}

/* --- the partitions ------------------------------------------------------- */

static bool
find_queue(Push *push, Datum tenant, Datum name, TupleTableSlot *row)
{
	LogTable *table = push->queues_table;
	ScanKeyData keys[2];

	row_key(&keys[0], table, QUEUES_BY_NAME, 1, BTEqualStrategyNumber, tenant);
	row_key(&keys[1], table, QUEUES_BY_NAME, 2, BTEqualStrategyNumber, name);
	return row_find(table, QUEUES_BY_NAME, keys, lengthof(keys), row);
}

static bool
find_partition(Push *push, Datum queue_id, Datum name, TupleTableSlot *row)
{
	LogTable *table = push->partitions_table;
	ScanKeyData keys[2];

	row_key(&keys[0], table, PARTITIONS_BY_NAME, 1, BTEqualStrategyNumber, queue_id);
	row_key(&keys[1], table, PARTITIONS_BY_NAME, 2, BTEqualStrategyNumber, name);
	return row_find(table, PARTITIONS_BY_NAME, keys, lengthof(keys), row);
}

static void
note_partition(Push *push, PushEntry *entry, TupleTableSlot *row)
{
	LogTable *table = push->partitions_table;
	PushPartition *partition = &push->partitions[push->npartitions++];

	partition->id = *DatumGetUUIDP(row_value(table, row, PARTITIONS_ID));
	partition->queue_id = *DatumGetUUIDP(row_value(table, row, PARTITIONS_QUEUE_ID));
	partition->tid = row->tts_tid;
	entry->partition_id = partition->id;
	entry->found = true;
}

static int
by_id(const void *a, const void *b)
{
	return memcmp(&((const PushPartition *) a)->id, &((const PushPartition *) b)->id, UUID_LEN);
}

/* Sorts what was found, and has entries of one partition share it. */
static void
sort_partitions(Push *push)
{
	int n = 0;

	qsort(push->partitions, push->npartitions, sizeof(PushPartition), by_id);
	for (int i = 0; i < push->npartitions; i++)
		if (n == 0 || by_id(&push->partitions[n - 1], &push->partitions[i]) != 0)
			push->partitions[n++] = push->partitions[i];
	push->npartitions = n;
	for (int i = 0; i < push->n; i++)
		if (push->entries[i].found)
		{
			PushPartition key = {.id = push->entries[i].partition_id};

			push->entries[i].partition =
				bsearch(&key, push->partitions, n, sizeof(PushPartition), by_id);
		}
}

/* Whether the queue of entry i is that of the entry before it. */
static bool
same_queue(const Push *push, int i)
{
	const ArrayArg *args = push->args;

	return i > 0 && push->entries[i - 1].error == NULL &&
		   memcmp(DatumGetUUIDP(args[ARG_TENANT].values[i - 1]),
				  DatumGetUUIDP(args[ARG_TENANT].values[i]), UUID_LEN) == 0 &&
		   span_equals(span_of_varlena(DatumGetPointer(args[ARG_QUEUE].values[i - 1])),
					   span_of_varlena(DatumGetPointer(args[ARG_QUEUE].values[i])));
}

static void
find_partitions(Push *push)
{
	TupleTableSlot *queue = row_slot(push->queues_table);
	TupleTableSlot *partition = row_slot(push->partitions_table);
	bool found = false;

	push->partitions = palloc0(push->n * sizeof(PushPartition));
	for (int i = 0; i < push->n; i++)
	{
		PushEntry *entry = &push->entries[i];

		if (entry->error != NULL)
			continue;
		if (!same_queue(push, i))
			found = find_queue(push, push->args[ARG_TENANT].values[i],
							   push->args[ARG_QUEUE].values[i], queue);
		if (found && find_partition(push, row_value(push->queues_table, queue, QUEUES_ID),
									push->args[ARG_PARTITION].values[i], partition))
			note_partition(push, entry, partition);
	}
	ExecDropSingleTupleTableSlot(partition);
	ExecDropSingleTupleTableSlot(queue);
	sort_partitions(push);
}

static void
lock_partitions(Push *push, bool wait)
{
	LogTable *table = push->partitions_table;

	for (int i = 0; i < push->npartitions; i++)
	{
		PushPartition *partition = &push->partitions[i];
		ScanKeyData key;

		row_key(&key, table, PARTITIONS_BY_ID, 1, BTEqualStrategyNumber,
				UUIDPGetDatum(&partition->id));
		partition->row = table_slot_create(table->rel, &push->rows);
		partition->row->tts_tid = partition->tid;
		partition->lock = row_lock(table, PARTITIONS_BY_ID, &key, 1, partition->row,
								   LockTupleNoKeyExclusive, wait ? LockWaitBlock : LockWaitSkip);
		/* A call may lock more rows than there are buffers to pin. */
		if (partition->lock == ROW_LOCKED)
			ExecMaterializeSlot(partition->row);
	}
}

static void
read_queue(Push *push, PushPartition *partition, TupleTableSlot *row)
{
	LogTable *table = push->queues_table;
	ScanKeyData key;
	bool alive;

	row_key(&key, table, QUEUES_BY_ID, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(&partition->queue_id));
	if (!row_find(table, QUEUES_BY_ID, &key, 1, row))
		return;
	(void) row_get(table, row, QUEUES_DELETED_AT, &alive);
	partition->exists = alive;
	partition->encrypted = DatumGetBool(row_value(table, row, QUEUES_ENCRYPTION_ENABLED));
	partition->dedup_seconds =
		Max(DatumGetInt32(row_value(table, row, QUEUES_DEDUP_WINDOW_SECONDS)), queen_dedup_floor);
}

/* The queue may have been deleted, or become encrypted, before its partition was ours. */
static void
read_queues(Push *push)
{
	TupleTableSlot *row = row_slot(push->queues_table);

	for (int i = 0; i < push->npartitions; i++)
	{
		PushPartition *partition = &push->partitions[i];

		if (i > 0 && memcmp(&partition->queue_id, &push->partitions[i - 1].queue_id, UUID_LEN) == 0)
		{
			const PushPartition *before = &push->partitions[i - 1];

			partition->exists = before->exists;
			partition->encrypted = before->encrypted;
			partition->dedup_seconds = before->dedup_seconds;
		}
		else
			read_queue(push, partition, row);
	}
	ExecDropSingleTupleTableSlot(row);
}

static Datum
partition_value(Push *push, const PushPartition *partition, int column)
{
	return row_value(push->partitions_table, partition->row, column);
}

/* --- one segment ---------------------------------------------------------- */

static bool
is_duplicate(Push *push, PushEntry *entry)
{
	const PushPartition *partition = entry->partition;
	int64 last_offset = DatumGetInt64(partition_value(push, partition, PARTITIONS_LAST_OFFSET));
	int64 txns_start = DatumGetInt64(partition_value(push, partition, PARTITIONS_TXNS_START));
	TimestampTz since = entry->created_at - partition->dedup_seconds * USECS_PER_SEC;
	Suspects suspects;

	if (partition->dedup_seconds == 0 || last_offset < txns_start)
		return false;
	dedup_window_search(push->txns_table, &partition->id, txns_start, last_offset, since,
						entry->hashes, entry->frames, &suspects);
	if (!suspects.anywhere && suspects.n == 0)
		return false;
	duplicates_find(push->txns_table, push->segments_table, &partition->id, txns_start, since,
					&suspects, entry->hashes, entry->frames, &entry->duplicates);
	return entry->duplicates.n > 0;
}

/* Gives the segment its offsets. */
static void
update_partition(Push *push, PushEntry *entry)
{
	PushPartition *partition = entry->partition;
	LogTable *table = push->partitions_table;
	int64 last_offset = DatumGetInt64(partition_value(push, partition, PARTITIONS_LAST_OFFSET));
	int64 log_start = DatumGetInt64(partition_value(push, partition, PARTITIONS_LOG_START));
	int64 txns_start = DatumGetInt64(partition_value(push, partition, PARTITIONS_TXNS_START));
	int64 segments = DatumGetInt64(partition_value(push, partition, PARTITIONS_SEGMENTS));
	int64 bytes = DatumGetInt64(partition_value(push, partition, PARTITIONS_BYTES));
	TimestampTz last_write_at =
		DatumGetTimestampTz(partition_value(push, partition, PARTITIONS_LAST_WRITE_AT));

	entry->base_offset = last_offset + 1;
	entry->enlist = entry->base_offset == log_start || entry->base_offset == txns_start;
	row_draft(table, partition->row);
	row_set(table, PARTITIONS_LAST_OFFSET, Int64GetDatum(last_offset + entry->frames));
	row_set(table, PARTITIONS_LAST_CREATED_AT, TimestampTzGetDatum(entry->created_at));
	if (entry->created_at > last_write_at + WRITE_TIME_SPACING)
		row_set(table, PARTITIONS_LAST_WRITE_AT, TimestampTzGetDatum(entry->created_at));
	row_set(table, PARTITIONS_SEGMENTS, Int64GetDatum(segments + 1));
	row_set(table, PARTITIONS_BYTES, Int64GetDatum(bytes + VARSIZE_ANY_EXHDR(entry->blob)));
	row_update(table, partition->row);
	partition->written = push->statement;
}

static void
insert_segment(Push *push, const PushEntry *entry)
{
	LogTable *table = push->segments_table;

	row_draft(table, NULL);
	row_set(table, SEGMENTS_PARTITION_ID, UUIDPGetDatum(&entry->partition->id));
	row_set(table, SEGMENTS_BASE_OFFSET, Int64GetDatum(entry->base_offset));
	row_set(table, SEGMENTS_END_OFFSET, Int64GetDatum(entry->base_offset + entry->frames - 1));
	row_set(table, SEGMENTS_CREATED_AT, TimestampTzGetDatum(entry->created_at));
	row_set(table, SEGMENTS_BLOB, PointerGetDatum(entry->blob));
	row_insert(table);
}

static void
insert_txn(Push *push, const PushEntry *entry, Datum hashes)
{
	LogTable *table = push->txns_table;

	row_draft(table, NULL);
	row_set(table, TXNS_PARTITION_ID, UUIDPGetDatum(&entry->partition->id));
	row_set(table, TXNS_BASE_OFFSET, Int64GetDatum(entry->base_offset));
	row_set(table, TXNS_END_OFFSET, Int64GetDatum(entry->base_offset + entry->frames - 1));
	row_set(table, TXNS_CREATED_AT, TimestampTzGetDatum(entry->created_at));
	row_set(table, TXNS_HASHES, hashes);
	row_insert(table);
}

static void
count_segment(const PushEntry *entry)
{
	Size bytes = VARSIZE_ANY_EXHDR(entry->blob);
	size_t raw_bytes;

	if (segment_raw_size(VARDATA_ANY(entry->blob), bytes, &raw_bytes) != NULL)
		raw_bytes = 0;
	pending_push(&entry->partition->queue_id, &entry->partition->id, entry->frames, raw_bytes,
				 bytes);
}

static PushStatus
push_segment(Push *push, int i, PushEntry *entry)
{
	PushPartition *partition = entry->partition;
	TimestampTz newest;

	if (partition->written == push->statement)
	{
		rows_statement();
		push->statement++;
	}
	newest = DatumGetTimestampTz(partition_value(push, partition, PARTITIONS_LAST_CREATED_AT));
	entry->created_at = Max(GetCurrentTimestamp(), newest + 1);
	if (is_duplicate(push, entry))
	{
		pending_duplicates(&partition->queue_id, entry->duplicates.n);
		return PUSH_DUPLICATE;
	}
	update_partition(push, entry);
	insert_segment(push, entry);
	insert_txn(push, entry, push->args[ARG_HASHES].values[i]);
	dedup_window_add(&partition->id, entry->base_offset, entry->hashes, entry->frames);
	count_segment(entry);
	return PUSH_QUEUED;
}

static PushStatus
push_entry(Push *push, int i, PushEntry *entry)
{
	const PushPartition *partition = entry->partition;

	if (entry->error != NULL)
		return PUSH_INVALID;
	if (partition == NULL || !partition->exists || partition->lock == ROW_GONE)
		return PUSH_MISSING;
	if (partition->lock == ROW_BUSY)
		return PUSH_BUSY;
	if (partition->encrypted && !segment_all_encrypted(entry->blob))
		return PUSH_CLEAR;
	return push_segment(push, i, entry);
}

/* --- the due list --------------------------------------------------------- */

static SPIPlanPtr
enlist_plan(void)
{
	static SPIPlanPtr plan = NULL;
	Oid types[] = {UUIDARRAYOID, INT8ARRAYOID, TIMESTAMPTZARRAYOID};

	if (plan == NULL)
	{
		plan = SPI_prepare("SELECT queen.log_enlist($1, $2, $3)", lengthof(types), types);
		if (plan == NULL)
			elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
		SPI_keepplan(plan);
	}
	return plan;
}

static void
enlist(Push *push)
{
	Datum *ids = palloc(push->n * sizeof(Datum));
	Datum *bases = palloc(push->n * sizeof(Datum));
	Datum *stamps = palloc(push->n * sizeof(Datum));
	Datum values[3];
	int n = 0;

	for (int i = 0; i < push->n; i++)
	{
		PushEntry *entry = &push->entries[i];

		if (!entry->enlist)
			continue;
		ids[n] = UUIDPGetDatum(&entry->partition->id);
		bases[n] = Int64GetDatum(entry->base_offset);
		stamps[n++] = TimestampTzGetDatum(entry->created_at);
	}
	if (n == 0)
		return;
	values[0] = PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	values[1] =
		PointerGetDatum(construct_array(bases, n, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[2] = PointerGetDatum(
		construct_array(stamps, n, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	SPI_connect();
	if (SPI_execute_plan(enlist_plan(), values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not write the due list");
	SPI_finish();
}

/* --- the call ------------------------------------------------------------- */

static void
open_tables(Push *push)
{
	push->partitions_table = log_table_open(PARTITIONS, RowExclusiveLock);
	push->queues_table = log_table_open(QUEUES, AccessShareLock);
	push->segments_table = log_table_open(SEGMENTS, RowExclusiveLock);
	push->txns_table = log_table_open(TXNS, RowExclusiveLock);
}

static void
close_tables(Push *push)
{
	ExecResetTupleTable(push->rows, true);
	log_table_close(push->txns_table);
	log_table_close(push->segments_table);
	log_table_close(push->queues_table);
	log_table_close(push->partitions_table);
}

static void
push_all(Push *push, bool wait)
{
	open_tables(push);
	rows_begin();
	find_partitions(push);
	lock_partitions(push, wait);
	rows_statement();
	push->statement++;
	read_queues(push);
	for (int i = 0; i < push->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		push->entries[i].status = push_entry(push, i, &push->entries[i]);
	}
	PopActiveSnapshot();
	close_tables(push);
	enlist(push);
}

static Datum
frames_array(const Duplicates *duplicates)
{
	Datum *values = palloc(duplicates->n * sizeof(Datum));

	for (int i = 0; i < duplicates->n; i++)
		values[i] = Int32GetDatum(duplicates->frames[i]);
	return PointerGetDatum(
		construct_array(values, duplicates->n, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

static Datum
ids_array(const Duplicates *duplicates)
{
	Datum *values = palloc(duplicates->n * sizeof(Datum));

	for (int i = 0; i < duplicates->n; i++)
		values[i] = UUIDPGetDatum(&duplicates->ids[i]);
	return PointerGetDatum(
		construct_array(values, duplicates->n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}

static void
put_verdict(ReturnSetInfo *result, int i, PushEntry *entry)
{
	Datum values[8] = {0};
	bool nulls[8] = {false, false, true, true, true, true, true, true};

	values[0] = Int32GetDatum(i + 1);
	values[1] = CStringGetTextDatum(status_names[entry->status]);
	switch (entry->status)
	{
		case PUSH_QUEUED:
			values[2] = UUIDPGetDatum(&entry->partition->id);
			values[3] = Int64GetDatum(entry->base_offset);
			values[4] = TimestampTzGetDatum(entry->created_at);
			nulls[2] = nulls[3] = nulls[4] = false;
			break;
		case PUSH_DUPLICATE:
			values[5] = frames_array(&entry->duplicates);
			values[6] = ids_array(&entry->duplicates);
			nulls[5] = nulls[6] = false;
			break;
		case PUSH_INVALID:
			values[7] = CStringGetTextDatum(entry->error);
			nulls[7] = false;
			break;
		default:
			break;
	}
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * log_push(tenants uuid[], queues text[], partitions text[], counts int[], hashes bytea[],
 *			blobs bytea[], wait bool) returns setof push_verdict
 */
Datum
log_push(PG_FUNCTION_ARGS)
{
	Push push = {0};

	guard_write();
	InitMaterializedSRF(fcinfo, 0);
	read_entries(&push, fcinfo);
	push_all(&push, !PG_ARGISNULL(ARG_WAIT) && PG_GETARG_BOOL(ARG_WAIT));
	for (int i = 0; i < push.n; i++)
		put_verdict((ReturnSetInfo *) fcinfo->resultinfo, i, &push.entries[i]);
	return (Datum) 0;
}
