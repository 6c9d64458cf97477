/*
 * groups.c
 *		Consumer groups: listings, and where they start.
 */
#include "admin.h"

#include "body.h"
#include "db.h"
#include "names.h"
#include "reports.h"
#include "worker.h"

#define LAG_SECONDS_DEFAULT 3600

void
groups_handler(Request *req)
{
	DbCall *call = db_call_new(CALL_GROUPS, admin_on_json, req);

	db_call_uuid(call, 0, &req->tenant);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

void
group_handler(Request *req)
{
	DbCall *call;

	if (admin_refuse_name(req, "consumerGroup", name_check(req->params[0])))
		return;
	call = db_call_new(CALL_GROUP, admin_on_json, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, req->params[0]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

void
lagging_handler(Request *req)
{
	DbCall *call = db_call_new(CALL_LAGGING, admin_on_json, req);

	db_call_uuid(call, 0, &req->tenant);
	db_call_int(call, 1, admin_number_arg(req, "minLagSeconds", LAG_SECONDS_DEFAULT, INT32_MAX));
	db_submit(req->worker->db, LANE_ADMIN, call);
}

static void
on_refreshed(DbCall *call, PGresult *res, const DbError *error)
{
	reports_refresh();
	admin_on_json(call, res, error);
}

void
refresh_statistics_handler(Request *req)
{
	db_submit(req->worker->db, LANE_ADMIN, db_call_new(CALL_REFRESH_STATISTICS, on_refreshed, req));
}

/* --- where a group starts on partitions that it has not met ------------------- */

static bool
read_start(Body *body, int64_t *start)
{
	Span timestamp = {NULL, 0};
	JsonValue key, value;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		if (json_string_equals(&key, "subscriptionTimestamp"))
		{
			if (!body_text(body, "subscriptionTimestamp", true, &timestamp))
				return false;
		}
		else if (!json_value(&body->reader, &value))
			return false;
	}
	if (!json_end(&body->reader))
		return false;
	if (timestamp.ptr == NULL)
		return body_fail(body, "subscriptionTimestamp", "is required");
	return pgtime_parse(timestamp, start) ||
		   body_fail(body, "subscriptionTimestamp", "is not an ISO 8601 time");
}

void
move_subscription_handler(Request *req)
{
	Buf strings = {0};
	Body body;
	int64_t start = 0;

	if (admin_refuse_name(req, "consumerGroup", name_check(req->params[0])))
		return;
	if (body_begin(&body, req, &strings) && read_start(&body, &start))
	{
		DbCall *call = db_call_new(CALL_MOVE_SUBSCRIPTION, admin_on_json, req);

		db_call_uuid(call, 0, &req->tenant);
		db_call_text(call, 1, req->params[0]);
		db_call_int64(call, 2, start);
		db_submit(req->worker->db, LANE_ADMIN, call);
	}
	else
		body_refuse(&body, req);
	buf_free(&strings);
}
