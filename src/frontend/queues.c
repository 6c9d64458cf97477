/*
 * queues.c
 *		DELETE /api/v1/resources/queues/:queue
 */
#include "admin.h"

#include "db.h"
#include "json.h"
#include "names.h"
#include "worker.h"

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

	if (admin_refuse_name(req, "queue", queue_name_check(req->params[0])))
		return;
	call = db_call_new(CALL_DELETE_QUEUE, on_deleted, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, req->params[0]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}
