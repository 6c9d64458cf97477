/*
 * ack.c
 *		log_ack(): acknowledgements move cursors, end leases, file dead letters.
 *
 * An entry of a call names messages that have all but the transaction id in
 * common.  The entries fall into acknowledgements: same tenant, partition, group,
 * worker and call number.  Several acknowledgements of one cursor take turns, in
 * the order of their first entries.  All cursors are locked first, ascending by
 * (partition, group), and nothing else is locked.  Everything after that reads
 * younger snapshots.
 *
 * The usual acknowledgement, a whole batch completed, costs a few probes of
 * primary keys, the sidecar rows of the batch and one HOT update.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "ack.h"
#include "arrays.h"
#include "function.h"
#include "guard.h"

QUEEN_FUNCTION(log_ack);

/* The arguments: arrays with an element per entry, and what follows them. */
enum
{
	ARG_TENANT,
	ARG_PARTITION,
	ARG_GROUP,
	ARG_WORKER,
	ARG_CALL,
	ARG_STATUS,
	ARG_ERROR,
	ARG_COUNT,
	ARG_ARRAYS,
	ARG_TRANSACTION_IDS = ARG_ARRAYS,
	ARG_WAIT
};

static const char *const status_names[] = {"completed", "dlq", "failed", "retry"};

/* --- the arguments ---------------------------------------------------------- */

static void *
element(const ArrayArg *array, int i)
{
	return array->nulls[i] ? NULL : DatumGetPointer(array->values[i]);
}

static text *
text_element(const ArrayArg *array, int i)
{
	return array->nulls[i] ? NULL : DatumGetTextPP(array->values[i]);
}

static bool
read_status(const text *name, AckStatus *status)
{
	for (int i = 0; name != NULL && i < (int) lengthof(status_names); i++)
		if (VARSIZE_ANY_EXHDR(name) == strlen(status_names[i]) &&
			memcmp(VARDATA_ANY(name), status_names[i], strlen(status_names[i])) == 0)
		{
			*status = (AckStatus) i;
			return true;
		}
	return false;
}

/* Why it cannot be acknowledged, NULL when it can. */
static const char *
item_problem(const AckItem *item, bool has_call, bool has_status)
{
	const AckEntry *entry = item->entry;

	if (entry->tenant == NULL || entry->group == NULL || !has_call)
		return "tenant, group and call are required";
	if (entry->partition == NULL)
		return "partition id is missing";
	if (item->transaction_id == NULL || VARSIZE_ANY_EXHDR(item->transaction_id) == 0)
		return "transaction id is missing";
	if (!has_status)
		return "status must be completed, failed, retry or dlq";
	return NULL;
}

/* 22023 unless each is at least 1 and all of them add up to the transaction ids. */
static void
check_counts(const ArrayArg *counts, int n, int n_ids)
{
	int64 sum = 0;
	bool valid = true;

	for (int i = 0; i < n; i++)
	{
		int count = counts->nulls[i] ? 0 : DatumGetInt32(counts->values[i]);

		valid &= count >= 1;
		sum += count;
	}
	if (!valid || sum != n_ids)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("counts must be at least 1 and add up to the transaction ids")));
}

/* Whether it has a valid item. */
static bool
read_entry(const ArrayArg *args, const ArrayArg *ids, int first_id, AckEntry *entry)
{
	int i = entry->number;
	bool has_call = !args[ARG_CALL].nulls[i];
	bool has_status = read_status(text_element(&args[ARG_STATUS], i), &entry->status);
	bool valid = false;

	entry->tenant = element(&args[ARG_TENANT], i);
	entry->partition = element(&args[ARG_PARTITION], i);
	entry->group = text_element(&args[ARG_GROUP], i);
	entry->worker = element(&args[ARG_WORKER], i);
	entry->call = has_call ? DatumGetInt32(args[ARG_CALL].values[i]) : 0;
	entry->error = text_element(&args[ARG_ERROR], i);
	for (int j = 0; j < entry->n; j++)
	{
		AckItem *item = &entry->items[j];

		item->entry = entry;
		item->transaction_id = text_element(ids, first_id + j);
		item->verdict.refusal = item_problem(item, has_call, has_status);
		valid |= item->verdict.refusal == NULL;
	}
	return valid;
}

static void
read_arguments(FunctionCallInfo fcinfo, AckCall *call)
{
	ArrayArg args[ARG_ARRAYS];
	ArrayArg ids;
	int n_ids;
	int first_id = 0;
	AckItem *items;

	call->n = array_args(fcinfo, ARG_ARRAYS, args);
	n_ids = array_arg(fcinfo, ARG_TRANSACTION_IDS, &ids);
	check_counts(&args[ARG_COUNT], call->n, n_ids);
	call->wait = !PG_ARGISNULL(ARG_WAIT) && PG_GETARG_BOOL(ARG_WAIT);
	call->entries = palloc0(call->n * sizeof(AckEntry));
	call->sorted = palloc(call->n * sizeof(AckEntry *));
	items = palloc0(n_ids * sizeof(AckItem));
	for (int i = 0; i < call->n; i++)
	{
		AckEntry *entry = &call->entries[i];

		entry->number = i;
		entry->items = items + first_id;
		entry->n = DatumGetInt32(args[ARG_COUNT].values[i]);
		if (read_entry(args, &ids, first_id, entry))
			call->sorted[call->n_sorted++] = entry;
		first_id += entry->n;
	}
}

/* --- the order -------------------------------------------------------------- */

static int
compare_uuids(const pg_uuid_t *a, const pg_uuid_t *b)
{
	return memcmp(a, b, UUID_LEN);
}

/* As collation "C" does. */
static int
compare_texts(const text *a, const text *b)
{
	Size a_len = VARSIZE_ANY_EXHDR(a);
	Size b_len = VARSIZE_ANY_EXHDR(b);
	int order = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(a_len, b_len));

	if (order == 0 && a_len != b_len)
		order = a_len < b_len ? -1 : 1;
	return order;
}

/* The lock order; another tenant's cursor is no cursor and gets no lock. */
static int
compare_cursors(const AckEntry *a, const AckEntry *b)
{
	int order = compare_uuids(a->partition, b->partition);

	if (order == 0)
		order = compare_texts(a->group, b->group);
	if (order == 0)
		order = compare_uuids(a->tenant, b->tenant);
	return order;
}

static int
compare_acks(const AckEntry *a, const AckEntry *b)
{
	if (a->worker == NULL || b->worker == NULL)
	{
		if (a->worker != b->worker)
			return a->worker == NULL ? -1 : 1;
	}
	else if (compare_uuids(a->worker, b->worker) != 0)
		return compare_uuids(a->worker, b->worker);
	return a->call < b->call ? -1 : a->call > b->call;
}

static int
compare_entries(const void *a, const void *b)
{
	const AckEntry *one = *(AckEntry *const *) a;
	const AckEntry *other = *(AckEntry *const *) b;
	int order = compare_cursors(one, other);

	if (order == 0)
		order = compare_acks(one, other);
	return order != 0 ? order : one->number - other->number;
}

static int
compare_turns(const void *a, const void *b)
{
	return ((const Ack *) a)->first->number - ((const Ack *) b)->first->number;
}

/* How many entries from "entries" on belong together. */
static int
run_length(AckEntry **entries, int n, int (*compare)(const AckEntry *, const AckEntry *))
{
	int len = 1;

	while (len < n && compare(entries[0], entries[len]) == 0)
		len++;
	return len;
}

static void
gather_items(Ack *ack, AckEntry **entries, int n)
{
	int max = 0;

	for (int i = 0; i < n; i++)
		max += entries[i]->n;
	ack->items = palloc(max * sizeof(AckItem *));
	for (int i = 0; i < n; i++)
		for (int j = 0; j < entries[i]->n; j++)
			if (entries[i]->items[j].verdict.refusal == NULL)
				ack->items[ack->n++] = &entries[i]->items[j];
}

/* Makes acknowledgements, in their turns, of the entries for one cursor. */
static void
take_turns(AckCursor *cursor, AckEntry **entries, int n)
{
	cursor->acks = palloc0(n * sizeof(Ack));
	while (n > 0)
	{
		Ack *ack = &cursor->acks[cursor->n++];
		int len = run_length(entries, n, compare_acks);

		ack->first = entries[0];
		gather_items(ack, entries, len);
		entries += len;
		n -= len;
	}
	qsort(cursor->acks, cursor->n, sizeof(Ack), compare_turns);
}

/* --- locks ------------------------------------------------------------------ */

static bool
find_by_id(LogTable *table, LogIndexId index, const pg_uuid_t *id, TupleTableSlot *row)
{
	ScanKeyData key;

	row_key(&key, table, index, 1, BTEqualStrategyNumber, UUIDPGetDatum(id));
	return row_find(table, index, &key, 1, row);
}

static void
cursor_keys(const AckCall *call, const AckCursor *cursor, ScanKey keys)
{
	row_key(&keys[0], call->consumers, CONSUMERS_BY_GROUP, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(cursor->partition_id));
	row_key(&keys[1], call->consumers, CONSUMERS_BY_GROUP, 2, BTEqualStrategyNumber,
			PointerGetDatum(cursor->group));
}

static bool
find_queue(AckCall *call, AckCursor *cursor, const pg_uuid_t *tenant)
{
	LogTable *queues = call->queues;
	TupleTableSlot *row = call->queue;
	bool live;

	if (!find_by_id(call->partitions, PARTITIONS_BY_ID, cursor->partition_id, call->partition))
		return false;
	cursor->queue_id =
		*DatumGetUUIDP(row_value(call->partitions, call->partition, PARTITIONS_QUEUE_ID));
	if (!find_by_id(queues, QUEUES_BY_ID, &cursor->queue_id, row))
		return false;
	(void) row_get(queues, row, QUEUES_DELETED_AT, &live);
	if (!live || compare_uuids(DatumGetUUIDP(row_value(queues, row, QUEUES_TENANT_ID)), tenant))
		return false;
	cursor->partition =
		DatumGetTextPCopy(row_value(call->partitions, call->partition, PARTITIONS_NAME));
	cursor->queue = DatumGetTextPCopy(row_value(queues, row, QUEUES_NAME));
	cursor->retry_limit = DatumGetInt32(row_value(queues, row, QUEUES_RETRY_LIMIT));
	cursor->letters = DatumGetBool(row_value(queues, row, QUEUES_DEAD_LETTER_QUEUE)) ||
					  DatumGetBool(row_value(queues, row, QUEUES_DLQ_AFTER_MAX_RETRIES));
	return true;
}

static CursorState
lock_cursor(AckCall *call, AckCursor *cursor, const pg_uuid_t *tenant)
{
	ScanKeyData keys[2];

	if (!find_queue(call, cursor, tenant))
		return CURSOR_MISSING;
	cursor_keys(call, cursor, keys);
	if (!row_find(call->consumers, CONSUMERS_BY_GROUP, keys, 2, call->consumer))
		return CURSOR_MISSING;
	switch (row_lock(call->consumers, CONSUMERS_BY_GROUP, keys, 2, call->consumer,
					 LockTupleNoKeyExclusive, call->wait ? LockWaitBlock : LockWaitSkip))
	{
		case ROW_LOCKED:
			return CURSOR_HELD;
		case ROW_BUSY:
			return CURSOR_BUSY;
		case ROW_GONE:
			break;
	}
	return CURSOR_MISSING;
}

/* --- the call --------------------------------------------------------------- */

/* Each further turn is a statement of its own: it may write the row again. */
static void
serve_cursor(AckCall *call, AckCursor *cursor)
{
	ScanKeyData keys[2];

	cursor_keys(call, cursor, keys);
	for (int i = 0; i < cursor->n; i++)
	{
		const Ack *ack = &cursor->acks[i];

		CHECK_FOR_INTERRUPTS();
		if (cursor->state != CURSOR_HELD)
		{
			for (int j = 0; j < ack->n; j++)
			{
				ack->items[j]->verdict.busy = cursor->state == CURSOR_BUSY;
				ack->items[j]->verdict.refusal =
					ack->items[j]->verdict.busy ? NULL : "consumer not found";
			}
			continue;
		}
		if (i > 0)
			rows_statement();
		if (!find_by_id(call->partitions, PARTITIONS_BY_ID, cursor->partition_id,
						call->partition) ||
			!row_find(call->consumers, CONSUMERS_BY_GROUP, keys, 2, call->consumer))
			elog(ERROR, "a locked cursor is not there");
		ack_apply(call, cursor, ack);
	}
}

static void
serve(AckCall *call)
{
	AckCursor *cursors = palloc0(call->n_sorted * sizeof(AckCursor));
	AckEntry **entries = call->sorted;
	int n = 0;

	qsort(call->sorted, call->n_sorted, sizeof(AckEntry *), compare_entries);
	rows_begin();
	for (int left = call->n_sorted; left > 0;)
	{
		AckCursor *cursor = &cursors[n++];
		int len = run_length(entries, left, compare_cursors);

		cursor->partition_id = entries[0]->partition;
		cursor->group = entries[0]->group;
		take_turns(cursor, entries, len);
		cursor->state = lock_cursor(call, cursor, entries[0]->tenant);
		entries += len;
		left -= len;
	}
	rows_statement();
	for (int i = 0; i < n; i++)
		serve_cursor(call, &cursors[i]);
	PopActiveSnapshot();
}

static void
open_tables(AckCall *call)
{
	call->queues = log_table_open(QUEUES, AccessShareLock);
	call->partitions = log_table_open(PARTITIONS, AccessShareLock);
	call->consumers = log_table_open(CONSUMERS, RowExclusiveLock);
	call->queue = row_slot(call->queues);
	call->partition = row_slot(call->partitions);
	call->consumer = row_slot(call->consumers);
	call->search = search_open();
}

static void
close_tables(AckCall *call)
{
	search_close(call->search);
	ExecDropSingleTupleTableSlot(call->queue);
	ExecDropSingleTupleTableSlot(call->partition);
	ExecDropSingleTupleTableSlot(call->consumer);
	log_table_close(call->queues);
	log_table_close(call->partitions);
	log_table_close(call->consumers);
}

/* Refusals are constants. */
static bool
same_verdict(const AckVerdict *a, const AckVerdict *b)
{
	return a->refusal == b->refusal && a->lease_released == b->lease_released &&
		   a->dead_lettered == b->dead_lettered && a->noop == b->noop && a->busy == b->busy &&
		   a->more == b->more && a->acted_on == b->acted_on;
}

static void
put_verdict(const ReturnSetInfo *result, const AckEntry *entry, int n, const AckVerdict *verdict)
{
	bool nulls[11] = {false};
	Datum values[11] = {
		Int32GetDatum(entry->number + 1),
		Int32GetDatum(n),
		BoolGetDatum(verdict->refusal == NULL && !verdict->busy),
		(Datum) 0,
		BoolGetDatum(verdict->lease_released),
		BoolGetDatum(verdict->dead_lettered),
		BoolGetDatum(verdict->noop),
		BoolGetDatum(verdict->busy),
		(Datum) 0,
		(Datum) 0,
		BoolGetDatum(verdict->more),
	};

	nulls[3] = verdict->refusal == NULL;
	if (!nulls[3])
		values[3] = CStringGetTextDatum(verdict->refusal);
	nulls[8] = nulls[9] = verdict->acted_on == NULL;
	if (!nulls[8])
	{
		values[8] = PointerGetDatum(verdict->acted_on->queue);
		values[9] = PointerGetDatum(verdict->acted_on->partition);
	}
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* A row for each run of messages that have the same verdict. */
static void
put_entry(const ReturnSetInfo *result, const AckEntry *entry)
{
	int n;

	for (int i = 0; i < entry->n; i += n)
	{
		const AckVerdict *verdict = &entry->items[i].verdict;

		n = 1;
		while (i + n < entry->n && same_verdict(verdict, &entry->items[i + n].verdict))
			n++;
		put_verdict(result, entry, n, verdict);
	}
}

/*
 * log_ack(tenants uuid[], partition_ids uuid[], groups text[], workers uuid[], calls int[],
 *		   statuses text[], errors text[], counts int[], transaction_ids text[], wait bool)
 * returns table (entry int, messages int, success bool, error text, lease_released bool, dlq bool,
 *				  noop bool, busy bool, queue text, partition text, more bool)
 */
Datum
log_ack(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	AckCall call = {0};

	guard_write();
	read_arguments(fcinfo, &call);
	InitMaterializedSRF(fcinfo, 0);
	open_tables(&call);
	serve(&call);
	close_tables(&call);
	for (int i = 0; i < call.n; i++)
		put_entry(result, &call.entries[i]);
	return (Datum) 0;
}
