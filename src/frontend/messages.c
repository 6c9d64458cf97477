/*
 * messages.c
 *		GET /api/v1/messages, GET and DELETE /api/v1/messages/:partitionId/:transactionId
 *
 * The database describes a message in JSON; here its payload is added.
 */
#include "admin.h"

#include "crypt.h"
#include "frame.h"
#include "json.h"
#include "names.h"
#include "worker.h"

#define MESSAGES_LIMIT_DEFAULT 200
#define MESSAGES_LIMIT_MAX 1000
#define MESSAGES_OFFSET_MAX 9000
#define HOUR_US INT64_C(3600000000)

/* The description, with the members "data", "payload" and "isEncrypted" at its end. */
static void
append_message(Buf *out, const Request *req, const PGresult *res, int row)
{
	Span meta = pgcol_span(res, row, MESSAGE_META);
	Span payload = pgcol_span(res, row, MESSAGE_PAYLOAD);
	int flags = pgcol_int(res, row, MESSAGE_FLAGS);
	size_t start, len;

	buf_append(out, meta.ptr, meta.len - 1);
	buf_append_str(out, ",\"data\":");
	start = out->len;
	crypt_render(req->worker->crypt, flags, payload, out);
	len = out->len - start;
	buf_append_str(out, ",\"payload\":");
	if (buf_reserve(out, len))
		buf_append(out, out->data + start, len);
	buf_printf(out, ",\"isEncrypted\":%s}", flags & FRAME_ENCRYPTED ? "true" : "false");
}

static void
on_messages(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Span mode =
		SPAN_LITERAL("{\"hasQueueMode\": false, \"busGroupsCount\": 0, \"type\": \"none\"}");
	Buf body = {0};

	if (error)
	{
		admin_reply_error(req, error);
		return;
	}
	buf_append_str(&body, "{\"messages\":[");
	for (int row = 0; row < PQntuples(res); row++)
	{
		buf_append_str(&body, row ? "," : "");
		append_message(&body, req, res, row);
		mode = pgcol_span(res, row, MESSAGE_MODE);
	}
	buf_append_str(&body, "],\"mode\":");
	buf_append(&body, mode.ptr, mode.len);
	buf_printf(&body, ",\"total\":%d}", PQntuples(res));
	PQclear(res);
	http_reply(req, 200, &body);
}

static bool
is_status(Span status)
{
	static const char *const known[] = {"pending", "processing", "completed", "dead_letter"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (span_equals(status, span_of(known[i])))
			return true;
	return status.ptr == NULL;
}

void
messages_handler(Request *req)
{
	static const char *const names[] = {"queue", "partition", "namespace", "task"};
	int64_t from = pgtime_now() - HOUR_US, to = INT64_MAX;
	Span status = admin_filter_arg(req, "status");
	DbCall *call;

	if (!is_status(status))
	{
		http_reply_error(req, 400, "status must be pending, processing, completed or dead_letter");
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (queue_name_check(target_arg(&req->target, names[i])))
		{
			http_reply_error(req, 400, "queue, partition, namespace or task is not a valid name");
			return;
		}
	if (!admin_time_arg(req, "from", false, &from) || !admin_time_arg(req, "to", true, &to))
		return;
	call = db_call_new(CALL_MESSAGES, on_messages, req);
	db_call_uuid(call, 0, &req->tenant);
	for (int i = 0; i < 4; i++)
		db_call_text(call, 1 + i, admin_filter_arg(req, names[i]));
	if (call->params[3].buf.data == NULL)
		db_call_text(call, 3, admin_filter_arg(req, "ns"));
	db_call_text(call, 5, status);
	db_call_int64(call, 6, from);
	db_call_int64(call, 7, to); /* as a time that is infinity */
	db_call_int(call, 8,
				admin_number_arg(req, "limit", MESSAGES_LIMIT_DEFAULT, MESSAGES_LIMIT_MAX));
	db_call_int(call, 9, admin_number_arg(req, "offset", 0, MESSAGES_OFFSET_MAX));
	db_submit(req->worker->db, LANE_ADMIN, call);
}

/* --- one ------------------------------------------------------------------- */

static void
on_message(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};

	if (error)
		admin_reply_error(req, error);
	else if (PQntuples(res) == 0)
		http_reply_error(req, 404, "Message not found");
	else
	{
		append_message(&body, req, res, 0);
		http_reply(req, 200, &body);
	}
	PQclear(res);
}

/* What no message can be called is not looked for. */
static bool
parse_path(const Request *req, Uuid *partition_id)
{
	return uuid_parse(req->params[0].ptr, req->params[0].len, partition_id) &&
		   transaction_id_check(req->params[1]) == NULL;
}

void
message_handler(Request *req)
{
	Uuid partition_id;
	DbCall *call;

	if (!parse_path(req, &partition_id))
	{
		http_reply_error(req, 404, "Message not found");
		return;
	}
	call = db_call_new(CALL_MESSAGE, on_message, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 1, &partition_id);
	db_call_text(call, 2, req->params[1]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

static void
reply_deleted(Request *req, bool deleted)
{
	Buf body = {0};

	buf_printf(&body, "{\"success\":%s,\"partitionId\":", deleted ? "true" : "false");
	json_write_string(&body, req->params[0].ptr, req->params[0].len);
	buf_append_str(&body, ",\"transactionId\":");
	json_write_string(&body, req->params[1].ptr, req->params[1].len);
	buf_append_str(&body, deleted ? ",\"message\":\"dead letter deleted\"}"
								  : ",\"error\":\"Message not found\","
									"\"message\":\"there is no such dead letter\"}");
	http_reply(req, deleted ? 200 : 404, &body);
}

static void
on_deleted(DbCall *call, PGresult *res, const DbError *error)
{
	if (error)
		admin_reply_error(call->ctx, error);
	else
		reply_deleted(call->ctx, pgcol_int(res, 0, 0) > 0);
	PQclear(res);
}

void
delete_message_handler(Request *req)
{
	Uuid partition_id;
	DbCall *call;

	if (!parse_path(req, &partition_id))
	{
		reply_deleted(req, false);
		return;
	}
	call = db_call_new(CALL_DLQ_DELETE, on_deleted, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 1, &partition_id);
	db_call_text(call, 2, req->params[1]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}
