/*
 * replay.c
 *		POST /api/v1/dlq/:id/replay and /api/v1/messages/:partitionId/:transactionId/retry
 *
 * A dead letter moves to the tail of its partition, or of another one, as a
 * new message with transaction id "dlq:" and the letter's id.  The letter is
 * read first, because only the front end can pack it; the move itself is one
 * transaction, which fails when the letter is gone by then.
 */
#include "admin.h"

#include "body.h"
#include "maintenance.h"
#include "names.h"
#include "packer.h"
#include "pop.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Replay
{
	Request *req;
	bool by_letter; /* else by partition and transaction id */
	Uuid letter;
	Span queue, partition; /* where to; absent: where it came from */
	PGresult *res;		   /* the letter */
	PushItem item;
	char transaction_id[4 + UUID_TEXT_LEN];
	Buf strings;
} Replay;

static void
on_done(Request *req, bool delivered)
{
	Replay *replay = req->ctx;

	(void) delivered;
	PQclear(replay->res);
	free(replay->item.envelope);
	buf_free(&replay->strings);
	free(replay);
}

/* --- the answer ------------------------------------------------------------ */

static void
append_member(Buf *out, const char *name, Span value)
{
	buf_printf(out, ",\"%s\":", name);
	json_write_text(out, value);
}

static void
append_id(Buf *out, const char *name, const Uuid *id)
{
	char text[UUID_TEXT_LEN];

	uuid_format(id, text);
	append_member(out, name, (Span){text, sizeof(text)});
}

static void
reply_gone(Replay *replay)
{
	Request *req = replay->req;
	Buf body = {0};

	buf_append_str(&body, "{\"success\":false");
	if (replay->by_letter)
	{
		append_member(&body, "result", SPAN_LITERAL("gone"));
		append_member(&body, "dlqId", req->params[0]);
	}
	else
	{
		append_member(&body, "partitionId", req->params[0]);
		append_member(&body, "transactionId", req->params[1]);
	}
	append_member(&body, "error", SPAN_LITERAL("Message not found"));
	append_member(&body, "message", SPAN_LITERAL("there is no such dead letter"));
	buf_append_char(&body, '}');
	http_reply(req, 404, &body);
}

/* What is spooled comes first. */
static void
reply_maintenance(Replay *replay)
{
	Buf body = {0};

	buf_append_str(&body, "{\"success\":false,\"result\":\"maintenance\",\"dlqRowRemoved\":false,"
						  "\"error\":\"pushes are under maintenance\"}");
	http_reply(replay->req, 503, &body);
}

/* "removed": whether the letter is known to be where it was. */
static void
reply_failure(Replay *replay, int status, const char *error, const char *removed)
{
	Buf body = {0};

	buf_append_str(&body, "{\"success\":false");
	append_member(&body, "error", span_of(error));
	buf_printf(&body, ",\"dlqRowRemoved\":%s}", removed);
	http_reply(replay->req, status, &body);
}

static void
reply_verdict(Replay *replay, const PGresult *res, bool moved)
{
	const PGresult *letter = replay->res;
	Uuid id = replay->item.message_id;
	Buf body = {0};

	if (!moved && !pgcol_is_null(res, 0, REPLAY_ORIGINAL))
		pgcol_uuid(res, 0, REPLAY_ORIGINAL, &id);
	buf_append_str(&body, "{\"success\":true");
	append_member(&body, "result", span_of(moved ? "moved" : "duplicate"));
	append_member(&body, "queue", replay->queue);
	append_member(&body, "partition", replay->partition);
	append_member(&body, "consumerGroup", pgcol_span(letter, 0, LETTER_GROUP));
	append_id(&body, "dlqId", &replay->letter);
	append_member(&body, "originalTransactionId", pgcol_span(letter, 0, LETTER_TRANSACTION_ID));
	buf_append_str(&body, ",\"replayedAs\":{\"index\":0");
	append_id(&body, "message_id", &id);
	append_member(&body, "transaction_id", replay->item.transaction_id);
	append_member(&body, "queueName", replay->queue);
	append_member(&body, "status", span_of(moved ? "queued" : "duplicate"));
	buf_append_str(&body, ",\"offset\":");
	if (moved)
		buf_printf(&body, "%lld", (long long) pgcol_int64(res, 0, REPLAY_OFFSET));
	else
		buf_append_str(&body, "null");
	buf_printf(&body, "},\"dlqRowRemoved\":%s}", moved ? "true" : "false");
	http_reply(replay->req, 200, &body);
}

/* --- the move -------------------------------------------------------------- */

static void move(Replay *replay);

static void
on_moved(DbCall *call, PGresult *res, const DbError *error)
{
	Replay *replay = call->ctx;
	Worker *worker = replay->req->worker;
	Span status;

	if (error)
	{
		reply_failure(replay, db_error_status(error), error->message,
					  error->unknown ? "null" : "false");
		return;
	}
	status = pgcol_span(res, 0, REPLAY_STATUS);
	if (span_equals(status, SPAN_LITERAL("moved")))
	{
		pops_wake_partition(worker->pops, &replay->req->tenant, replay->queue, replay->partition);
		worker_wake_others(worker, &replay->req->tenant, replay->queue, replay->partition);
		reply_verdict(replay, res, true);
	}
	else if (span_equals(status, SPAN_LITERAL("duplicate")))
		reply_verdict(replay, res, false);
	else if (span_equals(status, SPAN_LITERAL("gone")))
		reply_gone(replay);
	else if (span_equals(status, SPAN_LITERAL("clear")) && worker->crypt &&
			 replay->item.envelope == NULL && push_item_seal(&replay->item, worker->crypt))
		move(replay);
	else
		reply_failure(replay, 500, "the destination does not take the message", "false");
	PQclear(res);
}

static void
move(Replay *replay)
{
	PushItem *item = &replay->item;
	Packer *packer = replay->req->worker->packer;
	Frame frame = push_item_frame(item);
	DbCall *call;

	if (!packer_pack(packer, &item, 1, frame_size(&frame)))
	{
		reply_failure(replay, 503, "out of memory", "false");
		return;
	}
	call = db_call_new(CALL_REPLAY, on_moved, replay);
	db_call_uuid(call, 0, &replay->req->tenant);
	db_call_uuid(call, 1, &replay->letter);
	db_call_text(call, 2, replay->queue);
	db_call_text(call, 3, replay->partition);
	db_call_text(call, 4, (Span){packer->hashes.data, packer->hashes.len});
	db_call_text(call, 5, (Span){packer->blob.data, packer->blob.len});
	db_submit(replay->req->worker->db, LANE_WAIT, call);
}

/* An envelope stays one: it is the frame's payload, with its flag. */
static bool
take_payload(Replay *replay)
{
	PushItem *item = &replay->item;
	Span payload = pgcol_span(replay->res, 0, LETTER_PAYLOAD);

	item->payload = payload;
	if ((pgcol_int(replay->res, 0, LETTER_FLAGS) & FRAME_ENCRYPTED) == 0)
		return true;
	item->envelope = malloc(payload.len + 1);
	if (item->envelope == NULL)
		return false;
	memcpy(item->envelope, payload.ptr, payload.len);
	item->envelope_len = payload.len;
	return true;
}

static void
on_letter(DbCall *call, PGresult *res, const DbError *error)
{
	Replay *replay = call->ctx;

	if (error)
	{
		reply_failure(replay, db_error_status(error), error->message, "false");
		return;
	}
	replay->res = res;
	if (PQntuples(res) == 0)
	{
		reply_gone(replay);
		return;
	}
	if (pgcol_span(res, 0, LETTER_PAYLOAD).len == 0)
	{
		reply_failure(replay, 409, "the message could not be read when it was filed", "false");
		return;
	}
	pgcol_uuid(res, 0, LETTER_ID, &replay->letter);
	if (replay->queue.ptr == NULL)
		replay->queue = pgcol_span(res, 0, LETTER_QUEUE);
	if (replay->partition.ptr == NULL)
		replay->partition = pgcol_span(res, 0, LETTER_PARTITION);
	memcpy(replay->transaction_id, "dlq:", 4);
	uuid_format(&replay->letter, replay->transaction_id + 4);
	replay->item.transaction_id = (Span){replay->transaction_id, sizeof(replay->transaction_id)};
	replay->item.producer_sub = pgcol_span(res, 0, LETTER_PRODUCER_SUB);
	push_item_mint(&replay->item);
	if (take_payload(replay))
		move(replay);
	else
		reply_failure(replay, 503, "out of memory", "false");
}

/* --- the request ----------------------------------------------------------- */

static Replay *
new_replay(Request *req)
{
	Replay *replay = calloc(1, sizeof(*replay));

	replay->req = req;
	req->ctx = replay;
	req->on_done = on_done;
	return replay;
}

/* Another destination, in a body that may be missing. */
static bool
parse_destination(Replay *replay, Body *body)
{
	JsonValue key, ignored;
	const char *why;

	if (replay->req->body.len == 0)
		return true;
	if (!body_begin(body, replay->req, &replay->strings) || !json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		bool ok;

		if (json_string_equals(&key, "queue"))
			ok = body_text(body, "queue", true, &replay->queue);
		else if (json_string_equals(&key, "partition"))
			ok = body_text(body, "partition", true, &replay->partition);
		else
			ok = json_value(&body->reader, &ignored);
		if (!ok)
			return false;
	}
	if (!json_end(&body->reader))
		return false;
	if (replay->queue.ptr && (why = name_check(replay->queue)) != NULL)
		return body_fail(body, "queue", why);
	if (replay->partition.ptr && (why = name_check(replay->partition)) != NULL)
		return body_fail(body, "partition", why);
	return true;
}

void
replay_handler(Request *req)
{
	Replay *replay = new_replay(req);
	DbCall *call;
	Body body;

	replay->by_letter = true;
	if (maintenance_push())
	{
		reply_maintenance(replay);
		return;
	}
	if (!parse_destination(replay, &body))
	{
		body_refuse(&body, req);
		return;
	}
	if (!uuid_parse(req->params[0].ptr, req->params[0].len, &replay->letter))
	{
		reply_gone(replay);
		return;
	}
	call = db_call_new(CALL_DLQ_LETTER, on_letter, replay);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 1, &replay->letter);
	db_submit(req->worker->db, LANE_ADMIN, call);
}

void
retry_handler(Request *req)
{
	Replay *replay = new_replay(req);
	Uuid partition_id;
	DbCall *call;

	if (maintenance_push())
	{
		reply_maintenance(replay);
		return;
	}
	if (!uuid_parse(req->params[0].ptr, req->params[0].len, &partition_id) ||
		transaction_id_check(req->params[1]) != NULL)
	{
		reply_gone(replay);
		return;
	}
	call = db_call_new(CALL_DLQ_LETTER, on_letter, replay);
	db_call_uuid(call, 0, &req->tenant);
	db_call_uuid(call, 2, &partition_id);
	db_call_text(call, 3, req->params[1]);
	db_submit(req->worker->db, LANE_ADMIN, call);
}
