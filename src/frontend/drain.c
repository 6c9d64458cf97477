/*
 * drain.c
 *		Stores what the spool has kept, in the order in which it came.
 *
 * A batch of records is read from the oldest file and sent, a segment per
 * partition.  Messages that are decided leave the batch; the others, in their
 * order, are sent again until none is left.  Then comes the next batch.
 *
 * A message may be stored already: its outcome was unknown, or a process ended
 * between the commit and its note of it.  The first look therefore goes back
 * some time, whatever the queue's own window, and takes for stored what has the
 * same message id.  Whether it is a duplicate of another message is for
 * the queue's window to say.
 */
#include "drain.h"

#include "clock.h"
#include "crypt.h"
#include "db.h"
#include "hash.h"
#include "hashindex.h"
#include "log.h"
#include "maintenance.h"
#include "pop.h"
#include "protocol.h"
#include "spool.h"
#include "push_targets.h"
#include "worker.h"

#include <stdlib.h>

#define BATCH_RECORDS SEGMENT_MAX_FRAMES
#define LOOK_BACK_SECONDS 900
#define PAUSE_MS 100 /* when other sessions hold all that is left */
#define ERROR_PAUSE_MS 1000

typedef struct DrainItem
{
	PushItem item;
	SpoolRecord record;
	char *plain; /* the payload in clear, malloc'ed, if it was encrypted */
	bool done;
} DrainItem;

struct Drain
{
	struct Worker *worker;
	bool open;
	SpoolSource source;
	uint64_t end; /* offset behind the batch */
	DrainItem *batch;
	size_t n;
	Targets targets; /* what is left of it */
	bool in_flight;
	size_t turn;		 /* which one, then */
	bool alone;			 /* one partition at a time, to find out which one fails */
	int64_t pause_until; /* monotonic milliseconds */
};

Drain *
drain_new(struct Worker *worker)
{
	Drain *drain = calloc(1, sizeof(*drain));

	drain->worker = worker;
	drain->batch = calloc(BATCH_RECORDS, sizeof(*drain->batch));
	if (drain->batch == NULL)
		abort();
	return drain;
}

static void
drop_batch(Drain *drain)
{
	for (size_t i = 0; i < drain->n; i++)
	{
		free(drain->batch[i].item.envelope);
		free(drain->batch[i].plain);
	}
	drain->n = 0;
	targets_free(&drain->targets);
}

void
drain_free(Drain *drain)
{
	if (drain == NULL)
		return;
	drop_batch(drain);
	if (drain->open)
		spool_source_close(&drain->source);
	free(drain->batch);
	free(drain);
}

/* --- the batch --------------------------------------------------------------- */

/* An encrypted payload goes in clear unless its queue asks for it; without the key, as it is. */
static void
fill_item(Drain *drain, DrainItem *drained)
{
	const Frame *frame = &drained->record.frame;
	PushItem *item = &drained->item;
	Buf plain = {0};

	memcpy(item->message_id.bytes, frame->message_id, 16);
	item->transaction_id = frame->transaction_id;
	item->producer_sub = frame->producer_sub;
	item->payload = frame->payload;
	if (frame->trace_id)
	{
		memcpy(item->trace_id.bytes, frame->trace_id, 16);
		item->has_trace = true;
	}
	transaction_hash(item->transaction_id.ptr, item->transaction_id.len, item->hash);
	if (!(frame->flags & FRAME_ENCRYPTED))
		return;
	if (drain->worker->crypt && crypt_open(drain->worker->crypt, frame->payload, &plain))
	{
		drained->plain = plain.data;
		item->payload = (Span){plain.data, plain.len};
		return;
	}
	buf_free(&plain);
	item->envelope = malloc(frame->payload.len);
	if (item->envelope == NULL)
		abort();
	memcpy(item->envelope, frame->payload.ptr, frame->payload.len);
	item->envelope_len = frame->payload.len;
}

static void
read_batch(Drain *drain)
{
	SpoolSource *source = &drain->source;
	size_t bytes = 0;

	drain->end = source->offset;
	while (drain->n < BATCH_RECORDS)
	{
		DrainItem *drained = &drain->batch[drain->n];
		uint64_t next = drain->end;
		Uuid tenant;

		memset(drained, 0, sizeof(*drained));
		if (spool_record_read(source->file, source->size, &next, &drained->record) != SPOOL_RECORD)
			break;
		bytes += next - drain->end;
		if (drain->n > 0 && bytes > SEGMENT_MAX_RAW)
			break;
		fill_item(drain, drained);
		memcpy(tenant.bytes, drained->record.tenant, 16);
		targets_add(&drain->targets, &tenant, drained->record.queue, drained->record.partition,
					&drained->item);
		drain->n++;
		drain->end = next;
	}
	drain->alone = false;
}

/* The next batch; false when nothing is spooled. */
static bool
next_batch(Drain *drain)
{
	for (;;)
	{
		if (!drain->open && !(drain->open = spool_source_open(&drain->source)))
			return false;
		read_batch(drain);
		if (drain->n > 0)
			return true;
		spool_source_remove(&drain->source);
		drain->open = false;
	}
}

static void
batch_is_stored(Drain *drain)
{
	drain->source.offset = drain->end;
	spool_source_progress(&drain->source, drain->end);
	drop_batch(drain);
}

/* --- verdicts ---------------------------------------------------------------- */

static void run(Drain *drain);

static DrainItem *
drained_of(PushItem *item)
{
	return (DrainItem *) item; /* its first member */
}

static void
decide(PushItem *item, bool refused)
{
	DrainItem *drained = drained_of(item);

	drained->done = true;
	spool_record_done(&drained->record, refused);
}

/* What is left of the target keeps its order. */
static void
drop_decided(PushTarget *target)
{
	size_t left = 0;

	for (size_t i = 0; i < target->n; i++)
		if (!drained_of(target->items[i])->done)
			target->items[left++] = target->items[i];
	target->n = left;
}

static void
decide_sent(PushTarget *target, bool refused)
{
	for (size_t i = 0; i < target->sent; i++)
		decide(target->items[i], refused);
	drop_decided(target);
	target->attempt = 0;
}

static void
stored(Drain *drain, PushTarget *target)
{
	Worker *worker = drain->worker;

	metrics_add(&worker->metrics, METRIC_PUSH_MESSAGES, target->sent);
	decide_sent(target, false);
	pops_wake_partition(worker->pops, &target->tenant, target->queue, target->partition);
	worker_wake_others(worker, &target->tenant, target->queue, target->partition);
}

static void
duplicates(PushTarget *target, const PGresult *res, int row)
{
	PgArrayReader frames, ids;
	Span frame, id;
	bool foreign = false;

	pgarray_read(&frames, res, row, PUSH_DUPLICATE_FRAMES);
	pgarray_read(&ids, res, row, PUSH_DUPLICATE_IDS);
	while (pgarray_next(&frames, &frame) && pgarray_next(&ids, &id))
	{
		int i = pgspan_int(frame);
		bool own;

		if (i < 0 || (size_t) i >= target->sent)
			continue;
		own = id.len == 16 && memcmp(id.ptr, target->items[i]->message_id.bytes, 16) == 0;
		if (own || target->attempt > 0)
			decide(target->items[i], false);
		else
			foreign = true;
	}
	drop_decided(target);
	target->attempt = foreign;
}

static void
refuse(PushTarget *target, const char *error)
{
	log_event(LOG_LEVEL_ERROR, "spooled messages were refused and are set aside", "error", error,
			  NULL);
	decide_sent(target, true);
}

/* True when something was decided or can be sent otherwise. */
static bool
verdict(Drain *drain, PushTarget *target, const PGresult *res, int row)
{
	Span status = pgcol_span(res, row, PUSH_STATUS);

	if (span_equals(status, SPAN_LITERAL("queued")))
		stored(drain, target);
	else if (span_equals(status, SPAN_LITERAL("duplicate")))
		duplicates(target, res, row);
	else if (span_equals(status, SPAN_LITERAL("clear")))
	{
		if (target->encrypt || drain->worker->crypt == NULL)
			refuse(target, "the queue is encrypted and this server has no key");
		target->encrypt = true;
	}
	else if (span_equals(status, SPAN_LITERAL("invalid")))
		refuse(target, PQgetvalue(res, row, PUSH_ERROR));
	else
		return false; /* busy, or deleted just now */
	return true;
}

static bool
anything_left(const Drain *drain)
{
	for (const PushTarget *target = drain->targets.list; target; target = target->next)
		if (target->n > 0)
			return true;
	return false;
}

/*
 * Only what no repetition can mend is the message's own fault: errors of its
 * data.  For anything else the spool waits, and tries the partitions one by
 * one, in turn, so that those that can go on do.
 */
static void
call_failed(Drain *drain, const DbError *error)
{
	drain->pause_until = clock_ms() + ERROR_PAUSE_MS;
	metrics_add(&drain->worker->metrics, METRIC_DB_ERRORS, 1);
	if (drain->alone && strncmp(error->sqlstate, "22", 2) == 0)
		refuse(drain->targets.segments[0].target, error->message);
	if (db_error_status(error) != 503)
		drain->alone = true;
	drain->turn++;
}

static void
on_pushed(DbCall *call, PGresult *res, const DbError *error)
{
	Drain *drain = call->ctx;
	bool progress = false;

	drain->in_flight = false;
	if (error)
		call_failed(drain, error);
	else
	{
		for (int row = 0; row < PQntuples(res); row++)
		{
			size_t segment = (size_t) pgcol_int(res, row, PUSH_ENTRY) - 1;

			progress |= verdict(drain, drain->targets.segments[segment].target, res, row);
		}
		PQclear(res);
		if (!progress)
			drain->pause_until = clock_ms() + PAUSE_MS;
	}
	if (!anything_left(drain))
		batch_is_stored(drain);
	run(drain);
}

/* --- sending ------------------------------------------------------------------ */

/* How many messages can be in one segment: up to the first one whose transaction id comes again. */
static size_t
distinct_prefix(const PushTarget *target)
{
	void *memory = calloc(1, hash_index_size(target->n));
	HashIndex index;
	size_t n = 0;

	if (memory == NULL)
		abort();
	hash_index_init(&index, target->n, memory);
	while (n < target->n && hash_index_add(&index, target->items[n]->hash, (uint32_t) n) < 0)
		n++;
	free(memory);
	return n;
}

/* The target whose turn it is, of those that are not done. */
static PushTarget *
next_alone(const Drain *drain)
{
	size_t left = 0;
	size_t skip;
	PushTarget *target;

	for (target = drain->targets.list; target; target = target->next)
		left += target->n > 0;
	skip = left ? drain->turn % left : 0;
	for (target = drain->targets.list; target; target = target->next)
		if (target->n > 0 && skip-- == 0)
			break;
	return target;
}

/* Targets of one attempt, the first one's; or one alone. */
static void
send_call(Drain *drain)
{
	DbCall *call = db_call_new(CALL_PUSH_SPOOLED, on_pushed, drain);
	SegmentColumns columns;
	const PushTarget *alone = drain->alone ? next_alone(drain) : NULL;
	int attempt = -1;

	segment_columns_begin(&columns, call->params, 1);
	columns.tenants = db_call_array(call, 0, OID_UUID);
	drain->targets.n_segments = 0;
	for (PushTarget *target = drain->targets.list; target; target = target->next)
	{
		if (target->n == 0 || (alone && target != alone) ||
			(attempt >= 0 && target->attempt != attempt))
			continue;
		attempt = target->attempt;
		if (!targets_pack(&drain->targets, target, distinct_prefix(target), drain->worker,
						  &columns))
		{
			db_call_free(call);
			drain->pause_until = clock_ms() + ERROR_PAUSE_MS;
			return;
		}
	}
	segment_columns_end(&columns);
	db_call_int(call, 6, attempt > 0 ? 0 : LOOK_BACK_SECONDS);
	drain->in_flight = true;
	db_submit(drain->worker->db, LANE_WAIT, call);
}

static bool
may_run(const Drain *drain)
{
	Worker *worker = drain->worker;

	return !drain->in_flight && !worker->draining && !worker->closing && maintenance_known() &&
		   !maintenance_push() && !db_lane_down(worker->db, LANE_WAIT) &&
		   clock_ms() >= drain->pause_until;
}

static void
run(Drain *drain)
{
	if (may_run(drain) && (drain->n > 0 || next_batch(drain)))
		send_call(drain);
}

void
drain_tick(Drain *drain)
{
	if (spool_available())
		run(drain);
}
