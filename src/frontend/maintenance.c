/*
 * maintenance.c
 *		Maintenance modes, and the routes of administration around them.
 */
#include "maintenance.h"

#include "admin.h"
#include "body.h"
#include "clock.h"
#include "db.h"
#include "pop.h"
#include "protocol.h"
#include "spool.h"
#include "route.h"
#include "worker.h"

#include <stdatomic.h>

enum
{
	MODE_PUSH,
	MODE_POP
};

#define LOOK_MS 60000	   /* a notification that was lost costs at most this */
#define LOOK_AGAIN_MS 1000 /* after a failure */

static atomic_bool push_mode, pop_mode, known;
static int64_t look_at; /* monotonic milliseconds; of the one thread that looks */
static bool looking;

bool
maintenance_push(void)
{
	return atomic_load_explicit(&push_mode, memory_order_relaxed);
}

bool
maintenance_pop(void)
{
	return atomic_load_explicit(&pop_mode, memory_order_relaxed);
}

bool
maintenance_known(void)
{
	return atomic_load_explicit(&known, memory_order_acquire);
}

static void
take_modes(const PGresult *res)
{
	atomic_store(&push_mode, pgcol_bool(res, 0, MODE_PUSH));
	atomic_store(&pop_mode, pgcol_bool(res, 0, MODE_POP));
	atomic_store_explicit(&known, true, memory_order_release);
}

static void
on_modes(DbCall *call, PGresult *res, const DbError *error)
{
	(void) call;
	looking = false;
	if (error)
		look_at = clock_ms() + LOOK_AGAIN_MS;
	else
		take_modes(res);
	PQclear(res);
}

void
maintenance_refresh(void)
{
	look_at = 0;
}

void
maintenance_tick(struct Worker *worker)
{
	if (looking || clock_ms() < look_at)
		return;
	looking = true;
	look_at = clock_ms() + LOOK_MS;
	db_submit(worker->db, LANE_ADMIN, db_call_new(CALL_MAINTENANCE, on_modes, NULL));
}

/* --- the answers ------------------------------------------------------------ */

static const char *
json_bool(bool value)
{
	return value ? "true" : "false";
}

static bool
is_pop_route(const Request *req)
{
	return req->target.n_segments == 5;
}

static void
append_buffer_stats(Buf *out, const Request *req, const SpoolState *state)
{
	buf_printf(out,
			   "\"bufferStats\":{\"pendingCount\":%lld,\"failedCount\":%lld,\"dbHealthy\":%s,"
			   "\"failedFiles\":{\"count\":%lld,\"totalBytes\":%lld,\"totalMB\":%.3f,"
			   "\"failoverCount\":%lld,\"qos0Count\":0}}",
			   state->pending, state->failed, json_bool(!db_lane_down(req->worker->db, LANE_PUSH)),
			   state->failed_files, state->failed_bytes,
			   (double) state->failed_bytes / (1024 * 1024), state->failed);
}

static void
reply_modes(Request *req, bool changed)
{
	SpoolState state = spool_state();
	bool push = maintenance_push(), pop = maintenance_pop();
	Buf body = {0};

	if (is_pop_route(req))
		buf_printf(&body, "{\"popMaintenanceMode\":%s,\"message\":\"%s\"}", json_bool(pop),
				   pop ? "pops get nothing" : "pops work as usual");
	else
	{
		buf_printf(&body,
				   "{\"maintenanceMode\":%s,\"popMaintenanceMode\":%s,"
				   "\"bufferedMessages\":%lld,\"bufferHealthy\":%s,",
				   json_bool(push), json_bool(pop), state.pending,
				   json_bool(spool_available() && state.healthy));
		if (changed)
			buf_printf(&body, "\"message\":\"%s\"}",
					   push			   ? "pushes go to the spool"
					   : state.pending ? "the spool is being stored"
									   : "pushes are stored at once");
		else
		{
			append_buffer_stats(&body, req, &state);
			buf_append_char(&body, '}');
		}
	}
	http_reply(req, 200, &body);
}

static void
on_asked(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;

	if (error)
		admin_reply_error(req, error);
	else
	{
		take_modes(res);
		reply_modes(req, false);
	}
	PQclear(res);
}

static void
on_changed(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;

	if (error)
		admin_reply_error(req, error);
	else
	{
		take_modes(res);
		reply_modes(req, true);
	}
	PQclear(res);
}

/* {"enabled": bool}; false when the request was answered with an error. */
static bool
parse_enabled(Request *req, bool *enabled)
{
	JsonReader reader;
	JsonValue key, value = {.type = JSON_NULL}, other;
	bool ok;

	json_begin(&reader, req->body.data, req->body.len, JSON_MAX_DEPTH);
	ok = json_enter_object(&reader);
	while (ok && json_next_key(&reader, &key))
		ok = json_value(&reader, json_string_equals(&key, "enabled") ? &value : &other);
	if (!ok || !json_end(&reader) || (value.type != JSON_TRUE && value.type != JSON_FALSE))
	{
		http_reply_error(req, 400, "enabled must be true or false");
		return false;
	}
	*enabled = value.type == JSON_TRUE;
	return true;
}

static void
change_mode(Request *req)
{
	DbCall *call;
	bool enabled;

	if (!parse_enabled(req, &enabled))
		return;
	if (enabled && !is_pop_route(req) && !spool_available())
	{
		http_reply_error(req, 409, "this server has no spool to keep pushes in");
		return;
	}
	call = db_call_new(CALL_SET_MAINTENANCE, on_changed, req);
	db_call_text(call, 0,
				 is_pop_route(req) ? SPAN_LITERAL("pop_maintenance_mode")
								   : SPAN_LITERAL("maintenance_mode"));
	db_call_bool(call, 1, enabled);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

void
maintenance_handler(Request *req)
{
	if (strcmp(req->route->method, "POST") == 0)
		change_mode(req);
	else
		db_submit(req->worker->db, LANE_ADMIN, db_call_new(CALL_MAINTENANCE, on_asked, req));
}

/* Front ends share nothing but the database, so there is no state of their own to show. */
void
shared_state_handler(Request *req)
{
	Buf body = {0};

	buf_printf(&body,
			   "{\"enabled\":false,\"reason\":\"front ends share only the database\","
			   "\"maintenance_mode\":%s,\"pop_maintenance_mode\":%s}",
			   json_bool(maintenance_push()), json_bool(maintenance_pop()));
	http_reply(req, 200, &body);
}

void
internal_stats_handler(Request *req)
{
	Buf body = {0};

	buf_append_str(&body, "{\"enabled\":false,\"peers\":[]}");
	http_reply(req, 200, &body);
}

void
buffers_handler(Request *req)
{
	SpoolState state = spool_state();
	Buf body = {0};

	buf_printf(&body, "{\"pending\":%lld,\"failed\":%lld,\"dbHealthy\":%s,\"worker\":%d}",
			   state.pending, state.failed, json_bool(!db_lane_down(req->worker->db, LANE_PUSH)),
			   req->worker->id);
	http_reply(req, 200, &body);
}

/* {"queue": text, "partition": text}: looks at the queue for parked pops. */
void
notify_handler(Request *req)
{
	Span queue = {NULL, 0}, partition = {NULL, 0};
	Buf strings = {0}, reply = {0};
	JsonValue key, ignored;
	Body body;
	bool ok;

	ok = body_begin(&body, req, &strings) && json_enter_object(&body.reader);
	while (ok && json_next_key(&body.reader, &key))
	{
		if (json_string_equals(&key, "queue"))
			ok = body_text(&body, "queue", false, &queue);
		else if (json_string_equals(&key, "partition"))
			ok = body_text(&body, "partition", true, &partition);
		else
			ok = json_value(&body.reader, &ignored);
	}
	ok = ok && json_end(&body.reader);
	if (ok && queue.ptr == NULL)
		ok = body_fail(&body, "queue", "is required");
	if (!ok)
		body_refuse(&body, req);
	else
	{
		if (partition.ptr == NULL)
			partition = span_of(DEFAULT_PARTITION);
		pops_wake_partition(req->worker->pops, &req->tenant, queue, partition);
		worker_wake_others(req->worker, &req->tenant, queue, partition);
		buf_append_str(&reply, "{\"status\":\"ok\"}");
		http_reply(req, 200, &reply);
	}
	buf_free(&strings);
}
