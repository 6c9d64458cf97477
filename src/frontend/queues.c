/*
 * queues.c
 *		DELETE /api/v1/resources/queues/:queue
 */
#include "admin.h"

#include "db.h"
#include "json.h"
#include "names.h"
#include "worker.h"

#include <stdio.h>

/* A name that no queue can have needs no look. */
static bool
bad_queue_name(Request *req, Span name)
{
	const char *why = queue_name_check(name);
	char text[128];

	if (why == NULL)
		return false;
	snprintf(text, sizeof(text), "queue %s", why);
	http_reply_error(req, 400, text);
	return true;
}

static void
on_deleted(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};
	bool existed;

	if (error)
	{
		admin_reply_error(req, error);
		return;
	}
	existed = pgcol_bool(res, 0, 0);
	buf_printf(&body, "{\"deleted\":%s,\"queue\":", existed ? "true" : "false");
	json_write_string(&body, req->params[0].ptr, req->params[0].len);
	buf_printf(&body, ",\"existed\":%s", existed ? "true" : "false");
	buf_append_str(&body, existed ? "}" : ",\"message\":\"no such queue\"}");
	PQclear(res);
	http_reply(req, 200, &body);
}

void
delete_queue_handler(Request *req)
{
	DbCall *call;

	if (bad_queue_name(req, req->params[0]))
		return;
	call = db_call_new(CALL_DELETE_QUEUE, on_deleted, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, req->params[0]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}
