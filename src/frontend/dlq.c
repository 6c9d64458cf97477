/*
 * dlq.c
 *		GET and DELETE /api/v1/dlq
 */
#include "admin.h"

#include "crypt.h"
#include "db.h"
#include "json.h"
#include "names.h"
#include "worker.h"

#include <stdlib.h>

#define DLQ_LIMIT_DEFAULT 100
#define DLQ_LIMIT_MAX 1000
#define PURGE_STEP 10000

typedef struct DlqPage
{
	int limit, offset;
} DlqPage;

static DlqPage
dlq_page(const Request *req)
{
	return (DlqPage){.limit = admin_number_arg(req, "limit", DLQ_LIMIT_DEFAULT, DLQ_LIMIT_MAX),
					 .offset = admin_number_arg(req, "offset", 0, INT32_MAX)};
}

static void
append_text(Buf *out, const char *name, const PGresult *res, int row, int col)
{
	buf_printf(out, ",\"%s\":", name);
	json_write_text(out, pgcol_span(res, row, col));
}

static void
append_id(Buf *out, const char *name, const PGresult *res, int row, int col)
{
	char text[UUID_TEXT_LEN];
	Uuid id;

	pgcol_uuid(res, row, col, &id);
	uuid_format(&id, text);
	buf_printf(out, "\"%s\":\"%.*s\"", name, UUID_TEXT_LEN, text);
}

static void
append_dead_letter(Buf *out, Crypt *crypt, const PGresult *res, int row)
{
	Span payload = pgcol_span(res, row, DLQ_PAYLOAD);
	Buf failed_at = {0};

	buf_append_char(out, '{');
	append_id(out, "id", res, row, DLQ_ID);
	append_text(out, "transactionId", res, row, DLQ_TRANSACTION_ID);
	buf_append_char(out, ',');
	append_id(out, "partitionId", res, row, DLQ_PARTITION_ID);
	append_text(out, "queue", res, row, DLQ_QUEUE);
	append_text(out, "partition", res, row, DLQ_PARTITION);
	append_text(out, "consumerGroup", res, row, DLQ_GROUP);
	append_text(out, "errorMessage", res, row, DLQ_ERROR);
	buf_printf(out, ",\"retryCount\":%d,\"data\":", pgcol_int(res, row, DLQ_RETRY_COUNT));
	crypt_render(crypt, pgcol_int(res, row, DLQ_FLAGS), payload, out);
	append_text(out, "producerSub", res, row, DLQ_PRODUCER_SUB);
	pgtime_format(&failed_at, pgcol_int64(res, row, DLQ_FAILED_AT), 3);
	buf_printf(out, ",\"createdAt\":\"%.*s\",\"failedAt\":\"%.*s\"}", (int) failed_at.len,
			   failed_at.data, (int) failed_at.len, failed_at.data);
	buf_free(&failed_at);
}

static void
on_dead_letters(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	DlqPage page = dlq_page(req);
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
		append_dead_letter(&body, req->worker->crypt, res, row);
	}
	buf_printf(&body, "],\"pagination\":{\"limit\":%d,\"offset\":%d},\"total\":%d}", page.limit,
			   page.offset, PQntuples(res));
	PQclear(res);
	http_reply(req, 200, &body);
}

/* A queue or a group that no name can be is answered here. */
static bool
bad_filter(Request *req, Span queue, Span partition, Span group)
{
	if ((queue.ptr == NULL || !queue_name_check(queue)) &&
		(partition.ptr == NULL || !name_check(partition)) &&
		(group.ptr == NULL || !name_check(group)))
		return false;
	http_reply_error(req, 400, "queue, partition or consumerGroup is not a valid name");
	return true;
}

void
dlq_handler(Request *req)
{
	DlqPage page = dlq_page(req);
	Span queue = admin_filter_arg(req, "queue");
	Span partition = admin_filter_arg(req, "partition");
	Span group = admin_filter_arg(req, "consumerGroup");
	int64_t from = INT64_MIN, to = INT64_MAX;
	DbCall *call;

	if (bad_filter(req, queue, partition, group) || !admin_time_arg(req, "from", false, &from) ||
		!admin_time_arg(req, "to", true, &to))
		return;
	call = db_call_new(CALL_DLQ, on_dead_letters, req);
	db_call_uuid(call, 0, &req->tenant);
	db_call_text(call, 1, queue);
	db_call_text(call, 2, partition);
	db_call_text(call, 3, group);
	db_call_int64(call, 4, from); /* as a time these are the infinities */
	db_call_int64(call, 5, to);
	db_call_int(call, 6, page.limit);
	db_call_int(call, 7, page.offset);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

/* --- purge ----------------------------------------------------------------- */

/* A purge goes in steps, so that no statement takes longer than it may. */
typedef struct Purge
{
	Request *req;
	Span queue, group;
	int64_t deleted;
} Purge;

static void purge_step(Purge *purge);

static void
purge_done(Request *req, bool delivered)
{
	(void) delivered;
	free(req->ctx);
}

static void
on_purged(DbCall *call, PGresult *res, const DbError *error)
{
	Purge *purge = call->ctx;
	Buf body = {0};
	int deleted;

	if (error)
	{
		admin_reply_error(purge->req, error);
		return;
	}
	deleted = pgcol_int(res, 0, 0);
	PQclear(res);
	purge->deleted += deleted;
	if (deleted > 0)
	{
		purge_step(purge);
		return;
	}
	buf_printf(&body, "{\"success\":true,\"deleted\":%lld,\"queue\":", (long long) purge->deleted);
	json_write_string(&body, purge->queue.ptr, purge->queue.len);
	buf_append_str(&body, ",\"consumerGroup\":");
	json_write_text(&body, purge->group);
	buf_append_char(&body, '}');
	http_reply(purge->req, 200, &body);
}

static void
purge_step(Purge *purge)
{
	DbCall *call = db_call_new(CALL_DLQ_PURGE, on_purged, purge);

	db_call_uuid(call, 0, &purge->req->tenant);
	db_call_text(call, 1, purge->queue);
	db_call_text(call, 2, purge->group);
	db_call_int(call, 3, PURGE_STEP);
	db_submit(purge->req->worker->db, LANE_ADMIN, call);
}

void
purge_dlq_handler(Request *req)
{
	Span queue = target_arg(&req->target, "queue");
	Span group = admin_filter_arg(req, "consumerGroup");
	Purge *purge;

	if (queue.ptr == NULL)
	{
		http_reply_error(req, 400, "queue is required");
		return;
	}
	if (bad_filter(req, queue, (Span){NULL, 0}, group))
		return;
	purge = calloc(1, sizeof(*purge));
	purge->req = req;
	purge->queue = queue;
	purge->group = group;
	req->ctx = purge;
	req->on_done = purge_done;
	purge_step(purge);
}
