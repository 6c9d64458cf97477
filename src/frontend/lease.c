/*
 * lease.c
 *		POST /api/v1/lease/:leaseId/extend {"seconds": 60}
 *
 * Every partition that was claimed with the lease id gets at least that many
 * seconds from now.  Always 200: a lease that is over, or that is no UUID,
 * renews nothing.
 */
#include "lease.h"

#include "db.h"
#include "json.h"
#include "worker.h"

#define SECONDS_DEFAULT 60
#define SECONDS_MAX 86400

static void
answer(Request *req, int renewed, const PGresult *res)
{
	static const char *const names[] = {"newExpiresAt", "expiresAt", "lease_expires_at"};
	Buf body = {0};

	buf_append_str(&body, "{\"leaseId\":");
	json_write_string(&body, req->params[0].ptr, req->params[0].len);
	buf_printf(&body, ",\"success\":%s,\"renewed\":%d", renewed > 0 ? "true" : "false", renewed);
	for (int i = 0; i < 3; i++)
	{
		buf_printf(&body, ",\"%s\":", names[i]);
		if (renewed > 0)
		{
			buf_append_char(&body, '"');
			pgtime_format(&body, pgcol_int64(res, 0, 1), 6);
			buf_append_char(&body, '"');
		}
		else
			buf_append_str(&body, "null");
	}
	buf_append_char(&body, '}');
	http_reply(req, 200, &body);
}

static void
on_renewed(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;

	if (error)
		http_reply_error(req, db_error_status(error), error->message);
	else
		answer(req, pgcol_int(res, 0, 0), res);
	PQclear(res);
}

/* What cannot be read means the default. */
static int
parse_seconds(const Buf *body)
{
	JsonReader reader;
	JsonValue key, value;
	long long seconds = SECONDS_DEFAULT;

	json_begin(&reader, body->data ? body->data : "", body->len, 64);
	if (!json_enter_object(&reader))
		return SECONDS_DEFAULT;
	while (json_next_key(&reader, &key) && json_value(&reader, &value))
		if (json_string_equals(&key, "seconds") && !json_int64(&value, &seconds))
			seconds = SECONDS_DEFAULT;
	if (!json_end(&reader))
		return SECONDS_DEFAULT;
	if (seconds < 1)
		return 1;
	return seconds > SECONDS_MAX ? SECONDS_MAX : (int) seconds;
}

void
lease_extend_handler(Request *req)
{
	Uuid lease_id;
	DbCall *call;

	if (!uuid_parse(req->params[0].ptr, req->params[0].len, &lease_id))
	{
		answer(req, 0, NULL);
		return;
	}
	call = db_call_new(CALL_RENEW, on_renewed, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 1, &lease_id);
	db_call_int(call, 2, parse_seconds(&req->body));
	/* It waits for cursors that another session holds. */
	db_submit(req->worker->db, LANE_WAIT, call);
}
