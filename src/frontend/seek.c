/*
 * seek.c
 *		Moves and deletes the cursors of consumer groups.
 *
 * Both go through a queue in steps, a transaction each, so that no other call
 * waits for more than one step's cursors.  When a step fails, what the ones
 * before it did stays done, and repeating the request does the rest.
 */
#include "admin.h"

#include "body.h"
#include "db.h"
#include "names.h"
#include "worker.h"

#include <stdlib.h>

#define STEP_PARTITIONS 1000

/* Columns of both calls. */
enum
{
	STEP_QUEUE_ID,
	STEP_CURSORS,
	STEP_NEXT
};

typedef struct Sweep
{
	Request *req;
	void (*send)(struct Sweep *sweep, Span resume);
	void (*answer)(struct Sweep *sweep);
	int64_t cursors; /* done so far */
	bool found;		 /* the queue exists */

	/* a seek */
	Span group, queue, partition; /* partition ptr NULL: all */
	Span timestamp;				  /* as it was given */
	bool to_end, to_beginning;
	int64_t target;
	Buf strings;

	/* a deletion; queue ptr NULL: from all queues */
	bool metadata;
} Sweep;

static void
on_done(Request *req, bool delivered)
{
	Sweep *sweep = req->ctx;

	(void) delivered;
	buf_free(&sweep->strings);
	free(sweep);
}

static void
on_step(DbCall *call, PGresult *res, const DbError *error)
{
	Sweep *sweep = call->ctx;

	if (error)
	{
		admin_reply_error(sweep->req, error);
		return;
	}
	sweep->cursors += pgcol_int(res, 0, STEP_CURSORS);
	if (!pgcol_is_null(res, 0, STEP_QUEUE_ID))
	{
		Uuid queue_id;

		sweep->found = true;
		pgcol_uuid(res, 0, STEP_QUEUE_ID, &queue_id);
		worker_wake_queue(sweep->req->worker, &queue_id);
	}
	if (pgcol_is_null(res, 0, STEP_NEXT))
		sweep->answer(sweep);
	else
		sweep->send(sweep, pgcol_span(res, 0, STEP_NEXT));
	PQclear(res);
}

/* NULL, with the request answered, when a name cannot be one. */
static Sweep *
sweep_new(Request *req, void (*send)(Sweep *, Span), void (*answer)(Sweep *), bool has_queue)
{
	Sweep *sweep;

	if (admin_refuse_name(req, "consumerGroup", name_check(req->params[0])) ||
		(has_queue && admin_refuse_name(req, "queue", queue_name_check(req->params[1]))))
		return NULL;
	sweep = calloc(1, sizeof(*sweep));
	sweep->req = req;
	sweep->send = send;
	sweep->answer = answer;
	sweep->group = req->params[0];
	if (has_queue)
		sweep->queue = req->params[1];
	req->ctx = sweep;
	req->on_done = on_done;
	return sweep;
}

/* --- seek ------------------------------------------------------------------- */

static void
seek_send(Sweep *sweep, Span resume)
{
	DbCall *call = db_call_new(CALL_SEEK, on_step, sweep);

	db_call_uuid(call, 0, &sweep->req->tenant);
	db_call_text(call, 1, sweep->group);
	db_call_text(call, 2, sweep->queue);
	db_call_text(call, 3, sweep->partition);
	db_call_int64(call, 4, sweep->target);
	db_call_text(call, 5, resume);
	db_call_int(call, 6, STEP_PARTITIONS);
	db_submit(sweep->req->worker->db, LANE_ADMIN, call);
}

static void
append_text(Buf *out, const char *name, Span text)
{
	buf_append_str(out, name);
	json_write_text(out, text);
}

static void
seek_answer(Sweep *sweep)
{
	bool success = sweep->cursors > 0;
	bool pinned = sweep->partition.ptr != NULL;
	Buf body = {0};

	buf_append_str(&body, success ? "{\"success\":true" : "{\"success\":false");
	if (!success)
		append_text(&body, ",\"error\":",
					pinned		   ? SPAN_LITERAL("Partition not found")
					: sweep->found ? SPAN_LITERAL("Queue has no partitions: not found")
								   : SPAN_LITERAL("Queue not found"));
	append_text(&body, ",\"consumerGroup\":", sweep->group);
	append_text(&body, ",\"queueName\":", sweep->queue);
	if (pinned)
		append_text(&body, ",\"partitionName\":", sweep->partition);
	buf_printf(&body, ",\"seekToEnd\":%s", sweep->to_end ? "true" : "false");
	append_text(&body, ",\"targetTimestamp\":", sweep->timestamp);
	if (pinned)
		buf_printf(&body, ",\"updated\":%s", success ? "true" : "false");
	else
		buf_printf(&body, ",\"partitionsUpdated\":%lld", (long long) sweep->cursors);
	buf_append_char(&body, '}');
	http_reply(sweep->req, success ? 200 : 404, &body);
}

static bool
read_seek(Sweep *sweep, Body *body)
{
	JsonValue key, value;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		if (json_string_equals(&key, "toEnd"))
		{
			if (!body_bool(body, "toEnd", &sweep->to_end))
				return false;
		}
		else if (json_string_equals(&key, "beginning"))
		{
			if (!body_bool(body, "beginning", &sweep->to_beginning))
				return false;
		}
		else if (json_string_equals(&key, "timestamp"))
		{
			if (!body_text(body, "timestamp", true, &sweep->timestamp))
				return false;
		}
		else if (!json_value(&body->reader, &value))
			return false;
	}
	return json_end(&body->reader);
}

/* Where the seek goes.  A partition goes to its end when nothing is said. */
static bool
choose_target(Sweep *sweep, Body *body)
{
	int given;

	if (sweep->to_end)
		sweep->timestamp.ptr = NULL; /* it says where */
	given = sweep->to_end + sweep->to_beginning + (sweep->timestamp.ptr != NULL);

	if (given == 0 && sweep->partition.ptr != NULL)
		sweep->to_end = true;
	else if (given != 1)
		return body_fail(body, "toEnd, beginning or timestamp", "is required, and only one");
	if (sweep->timestamp.ptr == NULL)
		sweep->target = sweep->to_end ? PGTIME_INFINITY : PGTIME_MINUS_INFINITY;
	else if (!pgtime_parse(sweep->timestamp, &sweep->target))
		return body_fail(body, "timestamp", "is not an ISO 8601 time");
	return true;
}

static void
seek(Request *req, Span partition)
{
	Sweep *sweep = sweep_new(req, seek_send, seek_answer, true);
	Body body;

	if (sweep == NULL)
		return;
	sweep->partition = partition;
	if (!body_begin(&body, req, &sweep->strings) ||
		(req->body.len > 0 && !read_seek(sweep, &body)) || !choose_target(sweep, &body))
		body_refuse(&body, req);
	else
		seek_send(sweep, (Span){NULL, 0});
}

void
seek_handler(Request *req)
{
	seek(req, (Span){NULL, 0});
}

void
seek_partition_handler(Request *req)
{
	if (!admin_refuse_name(req, "partition", name_check(req->params[2])))
		seek(req, req->params[2]);
}

/* --- deletion --------------------------------------------------------------- */

static void
delete_send(Sweep *sweep, Span resume)
{
	DbCall *call = db_call_new(CALL_DELETE_GROUP, on_step, sweep);

	db_call_uuid(call, 0, &sweep->req->tenant);
	db_call_text(call, 1, sweep->group);
	db_call_text(call, 2, sweep->queue);
	db_call_bool(call, 3, sweep->metadata);
	db_call_text(call, 4, resume);
	db_call_int(call, 5, STEP_PARTITIONS);
	db_submit(sweep->req->worker->db, LANE_ADMIN, call);
}

static void
delete_answer(Sweep *sweep)
{
	Buf body = {0};

	append_text(&body, "{\"success\":true,\"consumerGroup\":", sweep->group);
	if (sweep->queue.ptr)
		append_text(&body, ",\"queueName\":", sweep->queue);
	buf_printf(&body, ",\"deletedPartitions\":%lld,\"metadataDeleted\":%s}",
			   (long long) sweep->cursors, sweep->metadata ? "true" : "false");
	http_reply(sweep->req, 200, &body);
}

static void
delete_group(Request *req, bool has_queue)
{
	Sweep *sweep = sweep_new(req, delete_send, delete_answer, has_queue);

	if (sweep == NULL)
		return;
	sweep->metadata = admin_bool_arg(req, "deleteMetadata", true);
	delete_send(sweep, (Span){NULL, 0});
}

void
delete_group_handler(Request *req)
{
	delete_group(req, false);
}

void
delete_group_queue_handler(Request *req)
{
	delete_group(req, true);
}
