/*
 * pop.c
 *		log_pop(): hands out batches of messages to consumer groups.
 *
 * Nothing here waits for another session.  Cursors are claimed with SKIP
 * LOCKED, and in any order therefore; what has to be inserted is inserted under
 * a try-lock (sql/pop.sql).
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "arrays.h"
#include "function.h"
#include "guard.h"
#include "names.h"
#include "pop.h"

QUEEN_FUNCTION(log_pop);
QUEEN_FUNCTION(log_pop_problem);
QUEEN_FUNCTION(log_answer_bytes);
QUEEN_FUNCTION(log_contention_pause);

/*
 * The answer is one result in the memory of both sides, and decompressed in the
 * front end's; it ends with the segment that reaches this before compression.
 */
#define ANSWER_BYTES (32 * 1024 * 1024)

#define BATCH_MAX 10000
#define LEASE_SECONDS_MAX 86400
#define QUEUE_MODE "__QUEUE_MODE__"

enum
{
	ARG_TENANTS,
	ARG_QUEUES,
	ARG_PARTITIONS,
	ARG_GROUPS,
	ARG_WORKERS,
	ARG_BATCHES,
	ARG_MAX_PARTITIONS,
	ARG_LEASE_SECONDS,
	ARG_AUTO_ACKS,
	ARG_FILL_WAITS,
	ARG_MODES,
	ARG_FROMS
};

#define POP_ARGS (ARG_FROMS + 1)

static text *
text_of(const NullableDatum *args, int argument)
{
	return args[argument].isnull ? NULL : DatumGetTextPP(args[argument].value);
}

static int32
number_of(const NullableDatum *args, int argument)
{
	return DatumGetInt32(args[argument].value);
}

static Span
text_span(const text *t)
{
	return (Span){VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t)};
}

static bool
equals(const text *t, const char *s)
{
	return VARSIZE_ANY_EXHDR(t) == strlen(s) && memcmp(VARDATA_ANY(t), s, strlen(s)) == 0;
}

static bool
is_mode(const text *mode)
{
	return mode == NULL || equals(mode, "all") || equals(mode, "new");
}

/* Why these, all but the last, are not the arguments of a pop; NULL when they are. */
static const char *
problem_of(const NullableDatum *args)
{
	text *queue = text_of(args, ARG_QUEUES);
	text *partition = text_of(args, ARG_PARTITIONS);
	text *group = text_of(args, ARG_GROUPS);

	if (args[ARG_TENANTS].isnull || args[ARG_MAX_PARTITIONS].isnull || args[ARG_AUTO_ACKS].isnull ||
		args[ARG_FILL_WAITS].isnull)
		return "tenant, max_partitions, auto_ack and fill_wait are required";
	if (queue == NULL || queue_name_check(text_span(queue)) != NULL)
		return "invalid queue name";
	if (partition != NULL && name_check(text_span(partition)) != NULL)
		return "invalid partition name";
	if (group == NULL || name_check(text_span(group)) != NULL)
		return "invalid consumer group name";
	if (args[ARG_WORKERS].isnull && !DatumGetBool(args[ARG_AUTO_ACKS].value))
		return "a lease needs a worker";
	if (args[ARG_BATCHES].isnull || number_of(args, ARG_BATCHES) < 1 ||
		number_of(args, ARG_BATCHES) > BATCH_MAX)
		return "batch must be between 1 and 10000";
	if (!args[ARG_LEASE_SECONDS].isnull && number_of(args, ARG_LEASE_SECONDS) > LEASE_SECONDS_MAX)
		return "lease_seconds must be at most 86400";
	if (!is_mode(text_of(args, ARG_MODES)))
		return "mode must be all or new";
	return NULL;
}

/* One row that is not a slice of a segment. */
static void
put_status(PopCall *call, int entry, const char *status, const char *problem,
		   const pg_uuid_t *queue_id, TimestampTz retry_at)
{
	Datum values[POP_COLUMNS];
	bool nulls[POP_COLUMNS];

	memset(nulls, true, sizeof(nulls));
	values[POP_ENTRY] = Int32GetDatum(entry);
	values[POP_STATUS] = CStringGetTextDatum(status);
	nulls[POP_ENTRY] = nulls[POP_STATUS] = false;
	if (problem != NULL)
	{
		values[POP_ERROR] = CStringGetTextDatum(problem);
		nulls[POP_ERROR] = false;
	}
	if (queue_id != NULL)
	{
		values[POP_QUEUE_ID] = UUIDPGetDatum(queue_id);
		nulls[POP_QUEUE_ID] = false;
	}
	if (retry_at != DT_NOEND)
	{
		values[POP_RETRY_AT] = TimestampTzGetDatum(retry_at);
		nulls[POP_RETRY_AT] = false;
	}
	tuplestore_putvalues(call->rows, call->desc, values, nulls);
}

/* Deleted queues have another name. */
static bool
find_queue(PopCall *call, Datum tenant_id, Datum name)
{
	ScanKeyData keys[2];

	row_key(&keys[0], call->queues, QUEUES_BY_NAME, 1, BTEqualStrategyNumber, tenant_id);
	row_key(&keys[1], call->queues, QUEUES_BY_NAME, 2, BTEqualStrategyNumber, name);
	return row_find(call->queues, QUEUES_BY_NAME, keys, 2, call->queue);
}

static bool
find_named_partition(PopCall *call, Datum queue_id, Datum name)
{
	ScanKeyData keys[2];

	row_key(&keys[0], call->partitions, PARTITIONS_BY_NAME, 1, BTEqualStrategyNumber, queue_id);
	row_key(&keys[1], call->partitions, PARTITIONS_BY_NAME, 2, BTEqualStrategyNumber, name);
	return row_find(call->partitions, PARTITIONS_BY_NAME, keys, 2, call->partition);
}

static int64
queue_number(const PopCall *call, int column)
{
	return DatumGetInt32(row_value(call->queues, call->queue, column));
}

/* What the queue, which is in its slot, and the arguments say about delivery. */
static void
set_times(PopCall *call, const NullableDatum *args, PopRequest *request)
{
	int64 seconds = args[ARG_LEASE_SECONDS].isnull ? 0 : number_of(args, ARG_LEASE_SECONDS);

	if (seconds <= 0)
		seconds = queue_number(call, QUEUES_LEASE_TIME);
	request->lease = seconds * USECS_PER_SEC;
	request->delay = queue_number(call, QUEUES_DELAYED_PROCESSING) * USECS_PER_SEC;
	request->hold = queue_number(call, QUEUES_WINDOW_BUFFER) * USECS_PER_SEC;
	if (DatumGetBool(args[ARG_FILL_WAITS].value) && request->batch > 1)
		request->hold = Max(request->hold, queue_number(call, QUEUES_MIN_POP_WAIT_TIME) * 1000);
}

static PopRequest
request_of(PopCall *call, int entry, const NullableDatum *args)
{
	PopRequest request = {.entry = entry};

	request.tenant_id = *DatumGetUUIDP(args[ARG_TENANTS].value);
	request.queue_id = *DatumGetUUIDP(row_value(call->queues, call->queue, QUEUES_ID));
	request.group = text_of(args, ARG_GROUPS);
	request.group_number =
		worklist_group(VARDATA_ANY(request.group), VARSIZE_ANY_EXHDR(request.group));
	if (!args[ARG_WORKERS].isnull)
		request.worker_id = *DatumGetUUIDP(args[ARG_WORKERS].value);
	request.batch = number_of(args, ARG_BATCHES);
	request.max_partitions = number_of(args, ARG_MAX_PARTITIONS);
	request.auto_ack = DatumGetBool(args[ARG_AUTO_ACKS].value);
	request.mode = text_of(args, ARG_MODES);
	request.from_time = !args[ARG_FROMS].isnull;
	if (request.from_time)
		request.start_at = DatumGetTimestampTz(args[ARG_FROMS].value);
	set_times(call, args, &request);
	return request;
}

/*
 * Where a group starts is settled before its first pop knows whether there is
 * anything to deliver: what comes after that pop is never skipped.  False:
 * another session is at it.
 */
static bool
is_subscribed(PopCall *call, const PopRequest *request)
{
	text *whole_queue = cstring_to_text("");
	ScanKeyData keys[3];

	row_key(&keys[0], call->subscriptions, SUBSCRIPTIONS_BY_QUEUE, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(&request->queue_id));
	row_key(&keys[1], call->subscriptions, SUBSCRIPTIONS_BY_QUEUE, 2, BTEqualStrategyNumber,
			PointerGetDatum(request->group));
	row_key(&keys[2], call->subscriptions, SUBSCRIPTIONS_BY_QUEUE, 3, BTEqualStrategyNumber,
			PointerGetDatum(whole_queue));
	return row_find(call->subscriptions, SUBSCRIPTIONS_BY_QUEUE, keys, 3, call->subscription) ||
		   pop_subscribe(request, whole_queue);
}

static TimestampTz
pop_pinned(Pop *pop)
{
	PopLook look = pop_look(pop, &pop->request.partition_id, false);

	return look.outcome == POP_LATER || look.outcome == POP_HELD ? look.until : DT_NOEND;
}

static void
serve_pop(PopCall *call, const PopRequest *request)
{
	int64 room = Max(call->room, 1);
	Pop pop = {.call = call,
			   .request = *request,
			   .budget = request->batch,
			   .room = room,
			   .places = request->max_partitions > 0 ? request->max_partitions : request->batch};
	TimestampTz again = GetCurrentTimestamp() + CONTENTION_PAUSE_US;

	if (request->pinned)
		again = pop_pinned(&pop);
	else if (is_subscribed(call, request))
		again = pop_any(&pop);
	call->room -= room - pop.room;
	pending_pop(&request->queue_id, &pop.count);
	if (pop.count.messages == 0)
		put_status(call, request->entry, "empty", NULL, &request->queue_id, again);
}

/*
 * A pop of a partition that does not exist leaves a note of where the group
 * starts on it.
 */
static void
await_partition(PopCall *call, const PopRequest *request, text *name)
{
	bool noted = pop_subscribe(request, name);

	put_status(call, request->entry, "empty", NULL, &request->queue_id,
			   noted ? DT_NOEND : GetCurrentTimestamp() + CONTENTION_PAUSE_US);
}

static void
pop_entry(PopCall *call, int entry, const NullableDatum *args)
{
	const char *problem = problem_of(args);
	text *partition = text_of(args, ARG_PARTITIONS);
	PopRequest request;

	if (problem != NULL)
	{
		put_status(call, entry, "invalid", problem, NULL, DT_NOEND);
		return;
	}
	rows_statement();
	if (!find_queue(call, args[ARG_TENANTS].value, args[ARG_QUEUES].value))
	{
		put_status(call, entry, partition == NULL ? "missing" : "empty", NULL, NULL, DT_NOEND);
		return;
	}
	request = request_of(call, entry, args);
	if (partition != NULL &&
		!find_named_partition(call, UUIDPGetDatum(&request.queue_id), PointerGetDatum(partition)))
	{
		await_partition(call, &request, partition);
		return;
	}
	if (partition != NULL)
	{
		request.pinned = true;
		request.partition_id =
			*DatumGetUUIDP(row_value(call->partitions, call->partition, PARTITIONS_ID));
		request.max_partitions = 1;
	}
	serve_pop(call, &request);
}

static PopCall
open_call(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PopCall call = {.queues = log_table_open(QUEUES, AccessShareLock),
					.partitions = log_table_open(PARTITIONS, AccessShareLock),
					.segments = log_table_open(SEGMENTS, AccessShareLock),
					.consumers = log_table_open(CONSUMERS, RowExclusiveLock),
					.subscriptions = log_table_open(SUBSCRIPTIONS, AccessShareLock),
					.rows = result->setResult,
					.desc = result->setDesc,
					.room = ANSWER_BYTES};

	call.queue = row_slot(call.queues);
	call.partition = row_slot(call.partitions);
	call.segment = row_slot(call.segments);
	call.covering = row_slot(call.segments);
	call.cursor = row_slot(call.consumers);
	call.subscription = row_slot(call.subscriptions);
	return call;
}

static void
close_call(PopCall *call)
{
	ExecDropSingleTupleTableSlot(call->queue);
	ExecDropSingleTupleTableSlot(call->partition);
	ExecDropSingleTupleTableSlot(call->segment);
	ExecDropSingleTupleTableSlot(call->covering);
	ExecDropSingleTupleTableSlot(call->cursor);
	ExecDropSingleTupleTableSlot(call->subscription);
	log_table_close(call->queues);
	log_table_close(call->partitions);
	log_table_close(call->segments);
	log_table_close(call->consumers);
	log_table_close(call->subscriptions);
}

/*
 * log_pop(tenants uuid[], queues text[], partitions text[], groups text[], workers uuid[],
 *		   batches int[], max_partitions int[], lease_seconds int[], auto_acks bool[],
 *		   fill_waits bool[], modes text[], froms timestamptz[])
 */
Datum
log_pop(PG_FUNCTION_ARGS)
{
	ArrayArg arrays[POP_ARGS];
	NullableDatum args[POP_ARGS];
	MemoryContext entry_memory;
	MemoryContext caller;
	PopCall call;
	int n;

	guard_write();
	n = array_args(fcinfo, POP_ARGS, arrays);
	InitMaterializedSRF(fcinfo, 0);
	call = open_call(fcinfo);
	entry_memory = AllocSetContextCreate(CurrentMemoryContext, "pop", ALLOCSET_DEFAULT_SIZES);
	rows_begin();
	for (int i = 0; i < n; i++)
	{
		caller = MemoryContextSwitchTo(entry_memory);
		for (int k = 0; k < POP_ARGS; k++)
			args[k] = (NullableDatum){arrays[k].values[i], arrays[k].nulls[i]};
		pop_entry(&call, i + 1, args);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(entry_memory);
	}
	PopActiveSnapshot();
	MemoryContextDelete(entry_memory);
	close_call(&call);
	return (Datum) 0;
}

/*
 * log_pop_problem(tenant_id uuid, queue text, partition text, consumer_group text, worker_id uuid,
 *				   batch int, max_partitions int, lease_seconds int, auto_ack bool, fill_wait bool,
 *				   mode text)
 */
Datum
log_pop_problem(PG_FUNCTION_ARGS)
{
	const char *problem = problem_of(fcinfo->args);

	if (problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}

/*
 * log_answer_bytes()
 */
Datum
log_answer_bytes(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(ANSWER_BYTES);
}

/*
 * log_contention_pause()
 */
Datum
log_contention_pause(PG_FUNCTION_ARGS)
{
	Interval *pause = palloc0(sizeof(Interval));

	pause->time = CONTENTION_PAUSE_US;
	PG_RETURN_INTERVAL_P(pause);
}
