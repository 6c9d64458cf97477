/*
 * pop.c
 *		GET /api/v1/pop/queue/:queue[/partition/:partition] and GET /api/v1/pop
 */
#include "maintenance.h"
#include "pop.h"

#include "clock.h"
#include "conf.h"
#include "deliver.h"
#include "parked.h"
#include "worker.h"

#include <stdlib.h>
#include <utlist.h>

#define BUNDLE_MAX_POPS 32
#define BUNDLE_MAX_MESSAGES 4000 /* asked for in one call, checked before the last pop is added */

struct Pops
{
	struct Worker *worker;
	Waiters *waiters;
	Pop *queue; /* POP_QUEUED */
	ZSTD_DCtx *dctx;
};

/* One log_pop call. */
struct PopBundle
{
	Pops *pops;
	DbCall *call;
	int n;
	int messages; /* asked for */
	bool counted; /* as in flight; not beside a push */
	Pop *members[BUNDLE_MAX_POPS];
};

Pops *
pops_new(struct Worker *worker)
{
	Pops *pops = calloc(1, sizeof(*pops));

	pops->worker = worker;
	pops->waiters = waiters_new(worker);
	pops->dctx = ZSTD_createDCtx();
	return pops;
}

void
pops_free(Pops *pops)
{
	waiters_free(pops->waiters);
	ZSTD_freeDCtx(pops->dctx);
	free(pops);
}

struct Worker *
pops_worker(const Pops *pops)
{
	return pops->worker;
}

ZSTD_DCtx *
pops_dctx(const Pops *pops)
{
	return pops->dctx;
}

void
pops_tick(Pops *pops)
{
	parked_tick(pops->worker, pops->waiters);
}

void
pops_wake_partition(Pops *pops, const Uuid *tenant, Span queue, Span partition)
{
	waiters_wake_partition(pops->waiters, NULL, tenant, queue, partition);
}

void
pops_wake_pushed(Pops *pops, const DbCall *follower, const Uuid *tenant, Span queue, Span partition)
{
	waiters_wake_partition(pops->waiters, follower ? follower->ctx : NULL, tenant, queue,
						   partition);
}

void
pops_wake_queue(Pops *pops, const Uuid *queue_id)
{
	waiters_wake_queue(pops->waiters, queue_id);
}

void
pops_wake_group(Pops *pops, const Uuid *tenant, Span queue, Span partition, Span group)
{
	waiters_wake_one_group(pops->waiters, tenant, queue, partition, group);
}

/* --- the life of a pop ---------------------------------------------------- */

static void
pop_leave_state(Pop *pop)
{
	if (pop->state == POP_QUEUED)
		DL_DELETE(pop->pops->queue, pop);
	else if (pop->state == POP_PARKED)
	{
		waiters_unpark(pop->wait_group, pop);
		event_del(&pop->timer);
	}
}

static void
pop_enqueue(Pop *pop)
{
	pop->state = POP_QUEUED;
	DL_APPEND(pop->pops->queue, pop);
}

void
pop_look_again(Pop *pop, bool probe)
{
	pop_leave_state(pop);
	pop->woken = true;
	pop->probe = probe;
	pop_enqueue(pop);
}

/* The last step before the network: an error text, or the body, or nothing. */
void
pop_reply(Pop *pop, int status, const char *error)
{
	pop_leave_state(pop);
	pop->state = POP_ANSWERED;
	if (pop->wait_group)
		waiters_leave(pop->wait_group);
	pop->wait_group = NULL;
	if (error)
		http_reply_error(pop->req, status, error);
	else if (status == 204)
		http_reply(pop->req, 204, NULL);
	else
		http_reply(pop->req, status, &pop->body);
}

static void
on_deadline(evutil_socket_t fd, short what, void *arg)
{
	Pop *pop = arg;

	(void) fd;
	(void) what;
	if (!pop->deferred)
	{
		pop_reply(pop, 204, NULL);
		return;
	}
	/* A batch that was still filling is better than none. */
	pop->last_look = true;
	pop_look_again(pop, false);
}

static void
pop_park(Pop *pop, int64_t retry_ms, int64_t left_ms)
{
	struct timeval tv = {left_ms / 1000, (left_ms % 1000) * 1000};

	pop->state = POP_PARKED;
	pop->deferred = retry_ms >= 0;
	waiters_park(pop->wait_group, pop, retry_ms, pop->woken);
	event_add(&pop->timer, &tv);
}

/* A look found nothing. */
void
pop_empty(Pop *pop, int64_t retry_ms)
{
	int64_t left = pop->deadline - clock_ms();
	bool news = pop->wait_group && waiters_wakes(pop->wait_group) != pop->wakes_seen;

	if (pop->gone || !pop->wait || pop->last_look || pop->pops->worker->draining ||
		(left <= 0 && retry_ms < 0))
	{
		if (news)
			waiters_wake(pop->wait_group); /* another one looks for them */
		pop_reply(pop, 204, NULL);
	}
	else if (left <= 0)
	{
		pop->last_look = true;
		pop_enqueue(pop);
	}
	else if (news)
		pop_enqueue(pop); /* news came while it looked */
	else
		pop_park(pop, retry_ms, left);
}

/* The client hung up.  Nothing may be leased for it from now on. */
static void
on_gone(Request *req)
{
	Pop *pop = req->ctx;

	pop->gone = true;
	if (pop->state == POP_QUEUED && pop->woken)
	{
		/* It was about to act on a wake-up: pass that on. */
		pop_leave_state(pop);
		pop->state = POP_ANSWERED;
		waiters_wake(pop->wait_group);
		pop_reply(pop, 204, NULL);
	}
	else if (pop->state == POP_QUEUED || pop->state == POP_PARKED)
		pop_reply(pop, 204, NULL);
	/* otherwise a call is in flight; its answer will see "gone" */
}

static void
on_done(Request *req, bool delivered)
{
	Pop *pop = req->ctx;

	if (pop->n_claimed > 0 && !delivered && !pop->auto_ack)
		deliver_release(pop);
	deliver_free(pop);
	free(pop);
}

/* --- looking -------------------------------------------------------------- */

static void
on_queue_provisioned(DbCall *call, PGresult *res, const DbError *error)
{
	Pop *pop = call->ctx;

	PQclear(res);
	if (error)
		pop_reply(pop, db_error_status(error), error->message);
	else if (pop->gone)
		pop_reply(pop, 204, NULL);
	else
		pop_enqueue(pop);
}

/* A wildcard pop creates its queue, so that the group is registered on it. */
static void
pop_provision(Pop *pop)
{
	DbCall *call = db_call_new(CALL_PROVISION, on_queue_provisioned, pop);
	PgArray *tenants = db_call_array(call, 0, OID_UUID);
	PgArray *queues = db_call_array(call, 1, OID_TEXT);
	PgArray *partitions = db_call_array(call, 2, OID_TEXT);

	pop->provisioned = true;
	pgarray_add_uuid(tenants, &pop->req->tenant);
	pgarray_add_span(queues, pop->queue);
	pgarray_add_null(partitions);
	pgarray_end(tenants);
	pgarray_end(queues);
	pgarray_end(partitions);
	db_submit(pop->pops->worker->db, LANE_WAIT, call);
}

/*
 * The database's clock decides; it may differ from ours, so the wait is bounded
 * elsewhere.  0: its search has not come to an end.
 */
static int64_t
retry_delay_ms(const PGresult *res, int row)
{
	int64_t delay;

	if (pgcol_is_null(res, row, POP_RETRY_AT))
		return -1;
	if (pgcol_int64(res, row, POP_RETRY_AT) == INT64_MIN)
		return 0;
	delay = (pgcol_int64(res, row, POP_RETRY_AT) - pgtime_now()) / 1000 + 1;
	return delay > 0 ? delay : 1;
}

static void
pop_found_nothing(Pop *pop, const PGresult *res, int row)
{
	int64_t retry_ms = retry_delay_ms(res, row);

	if (pop->wait_group && !pgcol_is_null(res, row, POP_QUEUE_ID))
	{
		Uuid queue_id;

		pgcol_uuid(res, row, POP_QUEUE_ID, &queue_id);
		waiters_know_queue(pop->wait_group, &queue_id);
	}

	/*
	 * A pop that names a partition of a queue that does not exist leaves no
	 * subscription behind; whatever comes while it waits is new to its group.
	 */
	if (retry_ms < 0)
		pop->start_new = false;
	pop_empty(pop, retry_ms);
}

/* Acts on the rows of one pop: [row, end). */
static void
pop_looked(Pop *pop, PopRows *rows, int row, int end)
{
	Span status = pgcol_span(rows->res, row, POP_STATUS);

	if (span_equals(status, SPAN_LITERAL("segment")))
	{
		pop->state = POP_DELIVERING;
		deliver_begin(pop, rows, row, end);
	}
	else if (span_equals(status, SPAN_LITERAL("missing")) && !pop->provisioned && !pop->gone)
		pop_provision(pop);
	else if (span_equals(status, SPAN_LITERAL("invalid")))
	{
		Span error = pgcol_span(rows->res, row, POP_ERROR);
		char *text = strndup(error.ptr ? error.ptr : "", error.len);

		pop_reply(pop, 400, text);
		free(text);
	}
	else
		pop_found_nothing(pop, rows->res, row);
}

static void
bundle_failed(PopBundle *bundle, const DbError *error)
{
	int status = db_error_status(error);

	metrics_add(&bundle->pops->worker->metrics, METRIC_DB_ERRORS, 1);
	for (int i = 0; i < bundle->n; i++)
	{
		Pop *pop = bundle->members[i];

		if (bundle->n > 1 && status != 503 && !pop->gone)
		{
			/* It may be the fault of another one. */
			pop->alone = true;
			pop_enqueue(pop);
		}
		else
			pop_reply(pop, status == 503 ? 503 : 500,
					  status == 503 ? error->message : "pop failed");
	}
}

static void
on_looked(DbCall *call, PGresult *res, const DbError *error)
{
	PopBundle *bundle = call->ctx;
	PopRows *rows;
	int n_rows;

	if (bundle->counted)
		inflight_answered(&bundle->pops->worker->reads, bundle->n);
	if (error)
	{
		bundle_failed(bundle, error);
		free(bundle);
		return;
	}
	rows = calloc(1, sizeof(*rows));
	rows->res = res;
	rows->users = 1;
	n_rows = PQntuples(res);
	for (int row = 0; row < n_rows;)
	{
		int entry = pgcol_int(res, row, POP_ENTRY);
		int end = row + 1;

		while (end < n_rows && pgcol_int(res, end, POP_ENTRY) == entry)
			end++;
		pop_looked(bundle->members[entry - 1], rows, row, end);
		row = end;
	}
	deliver_rows_release(rows);
	free(bundle);
}

static PopBundle *
bundle_new(Pops *pops, CallId id)
{
	PopBundle *bundle = calloc(1, sizeof(*bundle));

	if (bundle == NULL)
		abort();
	bundle->pops = pops;
	bundle->call = db_call_new(id, on_looked, bundle);
	return bundle;
}

static PopBundle *
begin_bundle(Pops *pops)
{
	static const Oid types[] = {OID_UUID, OID_TEXT, OID_TEXT, OID_TEXT, OID_UUID, OID_INT4,
								OID_INT4, OID_INT4, OID_BOOL, OID_BOOL, OID_TEXT, OID_TIMESTAMPTZ};
	PopBundle *bundle = bundle_new(pops, CALL_POP);

	for (int i = 0; i < 12; i++)
		db_call_array(bundle->call, i, types[i]);
	return bundle;
}

static bool
has_room(const PopBundle *bundle)
{
	return bundle->n < BUNDLE_MAX_POPS && bundle->messages < BUNDLE_MAX_MESSAGES;
}

/* Takes the pop out of its list, to look for it in the bundle's call. */
static void
join_bundle(PopBundle *bundle, Pop *pop)
{
	pop_leave_state(pop);
	pop->state = POP_LOOKING;
	if (pop->wait_group)
		pop->wakes_seen = waiters_wakes(pop->wait_group);
	uuid_v7(&pop->lease_id);
	bundle->members[bundle->n++] = pop;
	bundle->messages += pop->batch;
}

static void
add_pop(PopBundle *bundle, Pop *pop)
{
	PgArray *params = bundle->call->params;

	join_bundle(bundle, pop);
	pgarray_add_uuid(&params[0], &pop->req->tenant);
	pgarray_add_span(&params[1], pop->queue);
	pgarray_add_span(&params[2], pop->partition);
	pgarray_add_span(&params[3], pop->group);
	pgarray_add_uuid(&params[4], &pop->lease_id);
	pgarray_add_int(&params[5], pop->batch);
	pgarray_add_int(&params[6], pop->max_partitions);
	pgarray_add_int(&params[7], pop->lease_seconds);
	pgarray_add_bool(&params[8], pop->auto_ack);
	pgarray_add_bool(&params[9], pop->wait && !pop->last_look);
	pgarray_add_span(&params[10], span_of(pop->start_new ? "new" : "all"));
	if (pop->start_from == INT64_MIN)
		pgarray_add_null(&params[11]);
	else
		pgarray_add_int64(&params[11], pop->start_from);
}

DbCall *
pops_call(PopBundle *bundle)
{
	for (int i = 0; i < 12; i++)
		pgarray_end(&bundle->call->params[i]);
	return bundle->call;
}

static DbCall *
bundle_call(Pops *pops)
{
	PopBundle *bundle = begin_bundle(pops);

	while (pops->queue && has_room(bundle))
	{
		Pop *pop = pops->queue;

		if (pop->discovery || (pop->alone && bundle->n > 0))
			break;
		add_pop(bundle, pop);
		if (pop->alone)
			break;
	}
	return pops_call(bundle);
}

/* A discovery is a call of its own. */
static DbCall *
discovery_call(Pops *pops)
{
	PopBundle *bundle = bundle_new(pops, CALL_DISCOVER);
	DbCall *call = bundle->call;
	Pop *pop = pops->queue;

	join_bundle(bundle, pop);
	db_call_uuid(call, 0, &pop->req->tenant);
	db_call_text(call, 1, pop->namespace);
	db_call_text(call, 2, pop->task);
	db_call_text(call, 3, pop->group);
	db_call_uuid(call, 4, &pop->lease_id);
	db_call_int(call, 5, pop->batch);
	db_call_int(call, 6, pop->max_partitions);
	db_call_int(call, 7, pop->lease_seconds);
	db_call_bool(call, 8, pop->auto_ack);
	db_call_bool(call, 9, pop->wait && !pop->last_look);
	db_call_text(call, 10, span_of(pop->start_new ? "new" : "all"));
	if (pop->start_from != INT64_MIN)
		db_call_int64(call, 11, pop->start_from);
	return call;
}

/* --- in the transaction of a push ------------------------------------------ */

typedef struct Follow
{
	Pops *pops;
	PopBundle *bundle;
} Follow;

static void
follow(void *ctx, Pop *pop)
{
	Follow *to = ctx;

	if (pop->alone || (to->bundle && !has_room(to->bundle)))
		return;
	if (to->bundle == NULL)
		to->bundle = begin_bundle(to->pops);
	pop->woken = true;
	pop->probe = false;
	pop->follows = true;
	add_pop(to->bundle, pop);
}

PopBundle *
pops_follow(Pops *pops, PopBundle *bundle, const Uuid *tenant, Span queue, Span partition)
{
	Follow ctx = {pops, bundle};

	if (waiters_parked(pops->waiters) > 0 && !maintenance_pop() && !http_full(pops->worker->http))
		waiters_next(pops->waiters, tenant, queue, partition, follow, &ctx);
	return ctx.bundle;
}

/*
 * A pop has got what was pushed, or one that found nothing looks again in place
 * of the one that would be woken: each for one partition.  A pop that found
 * something older may have left the news to others.
 */
bool
pops_have_looked(PopBundle *bundle, const WaitGroup *group, Span partition)
{
	const PGresult *res = bundle->call->result;
	Pop *empty = NULL;

	for (int row = 0; row < PQntuples(res); row++)
	{
		Pop *pop = bundle->members[pgcol_int(res, row, POP_ENTRY) - 1];

		if (pop->wait_group != group)
			continue;
		if (!span_equals(pgcol_span(res, row, POP_STATUS), SPAN_LITERAL("segment")))
			empty = pop->follows ? pop : empty;
		else if (span_equals(pgcol_span(res, row, POP_PARTITION), partition))
			return true;
	}
	if (empty)
		empty->follows = false;
	return empty != NULL;
}

/* --- sending ---------------------------------------------------------------- */

int
pops_ready(const Pops *pops, int max)
{
	int n = 0;

	for (const Pop *pop = pops->queue; pop && n < max; pop = pop->next)
		n++;
	return n;
}

DbCall *
pops_next_call(Pops *pops)
{
	DbCall *call;
	PopBundle *bundle;

	if (pops->queue == NULL)
		return NULL;
	call = pops->queue->discovery ? discovery_call(pops) : bundle_call(pops);
	bundle = call->ctx;
	bundle->counted = true;
	inflight_sent(&pops->worker->reads, bundle->n);
	return call;
}

/* It is not looked for, so nothing is leased. */
static void
fail_full(Pop *pop)
{
	pop_reply(pop, 503, "too many answers are still being read");
}

static void
fail_unavailable(Pop *pop)
{
	pop_reply(pop, 503, "database not available");
}

void
pops_dispatch(Pops *pops)
{
	if (maintenance_pop())
		pops_drain(pops);
	while (pops->queue && http_full(pops->worker->http))
		fail_full(pops->queue);
	if (db_lane_down(pops->worker->db, LANE_READ))
	{
		while (pops->queue)
			fail_unavailable(pops->queue);
		waiters_each(pops->waiters, fail_unavailable);
	}
}

static void
answer_empty(Pop *pop)
{
	pop_reply(pop, 204, NULL);
}

void
pops_drain(Pops *pops)
{
	while (pops->queue)
		answer_empty(pops->queue);
	waiters_each(pops->waiters, answer_empty);
}

/* --- the request ---------------------------------------------------------- */

static void
pop_start(Request *req, bool discovery, Span namespace, Span task)
{
	Pops *pops = req->worker->pops;
	Pop *pop = calloc(1, sizeof(*pop));
	char error[128];

	metrics_add(&req->worker->metrics, METRIC_POP_REQUESTS, 1);
	pop->req = req;
	pop->discovery = discovery;
	pop->namespace = namespace;
	pop->task = task;
	pop->pops = pops;
	pop->state = POP_ANSWERED;
	req->ctx = pop;
	req->on_done = on_done;
	req->on_gone = on_gone;
	if (!pop_read_args(pop, error, sizeof(error)))
	{
		http_reply_error(req, 400, error);
		return;
	}
	evtimer_assign(&pop->timer, req->worker->base, on_deadline, pop);
	if (pop->wait && discovery)
		pop->wait_group =
			waiters_join_discovery(pops->waiters, &req->tenant, namespace, task, pop->group);
	else if (pop->wait)
		pop->wait_group =
			waiters_join(pops->waiters, &req->tenant, pop->queue, pop->partition, pop->group);
	http_watch(req);
	pop_enqueue(pop);
}

void
pop_handler(Request *req)
{
	pop_start(req, false, SPAN_LITERAL(""), SPAN_LITERAL(""));
}

/* An argument that is absent is empty. */
static Span
label_arg(const Request *req, const char *name)
{
	Span text = target_arg(&req->target, name);

	return text.ptr ? text : SPAN_LITERAL("");
}

void
discovery_handler(Request *req)
{
	Span namespace = label_arg(req, "namespace");
	Span task = label_arg(req, "task");
	Buf body = {0};

	if (namespace.len > 0 || task.len > 0)
	{
		pop_start(req, true, namespace, task);
		return;
	}
	buf_append_str(&body, "{\"success\":false,\"error\":\"namespace or task is required\","
						  "\"messages\":[]}");
	http_reply(req, 400, &body);
}
