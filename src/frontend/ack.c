/*
 * ack.c
 *		POST /api/v1/ack and /api/v1/ack/batch
 *
 * Requests that arrive while a call is in flight go out together in the next
 * one; each stays an acknowledgement of its own.  What another session's lock
 * turned away goes out again alone, where it may wait.
 */
#include "ack.h"

#include "body.h"
#include "clock.h"
#include "conf.h"
#include "db.h"
#include "names.h"
#include "pop.h"
#include "protocol.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#define ITEMS_MAX 100000
#define ACK_ARRAYS 9 /* arguments of log_ack */
#define BUNDLE_MAX_REQUESTS 64
#define BUNDLE_MAX_ITEMS 10000 /* checked before the last request is added */

typedef struct AckRequest
{
	struct AckRequest *prev, *next; /* in the queue, or among the turned away */
	Acks *acks;
	Request *req;
	Span group;
	AckItem *items;
	size_t n, cap;
	size_t undecided;
	bool alone;		  /* a call failed: find out whether this one is to blame */
	int64_t deadline; /* since it was turned away first, monotonic milliseconds; 0: it was not */
	Buf strings;	  /* unescaped texts; never grows beyond the body */
} AckRequest;

struct Acks
{
	struct Worker *worker;
	AckRequest *queue;
	AckRequest *turned_away;
};

/* One log_ack call: whose messages it holds, in order. */
typedef struct AckBundle
{
	Acks *acks;
	DbLaneId lane;
	int n;
	AckRequest *members[BUNDLE_MAX_REQUESTS];
} AckBundle;

Acks *
acks_new(struct Worker *worker)
{
	Acks *acks = calloc(1, sizeof(*acks));

	acks->worker = worker;
	return acks;
}

void
acks_free(Acks *acks)
{
	free(acks);
}

static void
on_done(Request *req, bool delivered)
{
	AckRequest *ack = req->ctx;

	(void) delivered;
	for (size_t i = 0; i < ack->n; i++)
		free(ack->items[i].error);
	free(ack->items);
	buf_free(&ack->strings);
	free(ack);
}

static void
fail_item(AckItem *item, const char *error)
{
	item->decided = true;
	item->error = strdup(error);
}

/* --- the answer ------------------------------------------------------------ */

static void
append_flag(Buf *out, const char *name, bool value)
{
	buf_append_str(out, name);
	buf_append_str(out, value ? "true" : "false");
}

static void
append_item(Buf *out, size_t index, const AckItem *item)
{
	buf_append_str(out, index ? ",{\"index\":" : "{\"index\":");
	buf_append_number(out, index);
	buf_append_str(out, ",\"transactionId\":");
	json_write_string(out, item->transaction_id.ptr, item->transaction_id.len);
	append_flag(out, ",\"success\":", item->success);
	buf_append_str(out, ",\"error\":");
	json_write_text(out, span_of(item->error));
	append_flag(out, ",\"leaseReleased\":", item->lease_released);
	append_flag(out, ",\"dlq\":", item->dead_lettered);
	append_flag(out, ",\"noop\":", item->noop);
	buf_append_char(out, '}');
}

static void
answer(AckRequest *ack)
{
	Buf body = {0};

	buf_append_char(&body, '[');
	for (size_t i = 0; i < ack->n; i++)
		append_item(&body, i, &ack->items[i]);
	buf_append_char(&body, ']');
	http_reply(ack->req, 200, &body);
}

/* --- one call -------------------------------------------------------------- */

/* One lease has ended, however many of its messages the request names: one pop is woken. */
static bool
same_lease_as_before(const AckRequest *ack, const AckItem *item)
{
	return item > ack->items && item[-1].lease_released &&
		   memcmp(&item[-1].partition_id, &item->partition_id, sizeof(Uuid)) == 0;
}

static void
item_verdict(AckRequest *ack, AckItem *item, const PGresult *res, int row)
{
	Span error = pgcol_span(res, row, ACK_ERROR);
	Span queue = pgcol_span(res, row, ACK_QUEUE);

	item->decided = true;
	item->success = pgcol_bool(res, row, ACK_SUCCESS);
	item->lease_released = pgcol_bool(res, row, ACK_LEASE_RELEASED);
	item->dead_lettered = pgcol_bool(res, row, ACK_DLQ);
	item->noop = pgcol_bool(res, row, ACK_NOOP);
	item->error = error.ptr ? strndup(error.ptr, error.len) : NULL;
	ack->undecided--;
	metrics_add(&ack->acks->worker->metrics, METRIC_ACK_MESSAGES, item->success);
	if (item->lease_released && pgcol_bool(res, row, ACK_MORE) && queue.ptr &&
		!same_lease_as_before(ack, item))
	{
		Span partition = pgcol_span(res, row, ACK_PARTITION);

		pops_wake_group(ack->acks->worker->pops, &ack->req->tenant, queue, partition, ack->group);
		worker_wake_others(ack->acks->worker, &ack->req->tenant, queue, partition);
	}
}

/* The first item from i on that is to be sent; the end when there is none. */
static size_t
next_undecided(const AckRequest *ack, size_t i)
{
	while (i < ack->n && ack->items[i].decided)
		i++;
	return i;
}

/* Takes the request's rows, from "row" on; which comes after them. */
static int
request_verdicts(AckRequest *ack, const PGresult *res, int row)
{
	int left = 0; /* messages of the row before */

	for (size_t i = next_undecided(ack, 0); i < ack->n; i = next_undecided(ack, i + 1))
	{
		if (left == 0)
			left = pgcol_int(res, row++, ACK_MESSAGES);
		left--;
		if (!pgcol_bool(res, row - 1, ACK_BUSY))
			item_verdict(ack, &ack->items[i], res, row - 1);
	}
	return row;
}

/* If it may be the fault of another request, this one goes out again by itself. */
static void
request_failed(const AckBundle *bundle, AckRequest *ack, const DbError *error)
{
	int status = db_error_status(error);

	if (bundle->n > 1 && status != 503)
	{
		ack->alone = true;
		DL_APPEND(bundle->acks->queue, ack);
	}
	else
		http_reply_error(ack->req, status == 503 ? 503 : 500, error->message);
}

static void
on_acked(DbCall *call, PGresult *res, const DbError *error)
{
	AckBundle *bundle = call->ctx;
	int row = 0;

	if (bundle->lane == LANE_READ)
		inflight_answered(&bundle->acks->worker->reads, bundle->n);
	if (error)
		metrics_add(&bundle->acks->worker->metrics, METRIC_DB_ERRORS, 1);
	for (int i = 0; i < bundle->n; i++)
	{
		AckRequest *ack = bundle->members[i];

		if (error)
		{
			request_failed(bundle, ack, error);
			continue;
		}
		row = request_verdicts(ack, res, row);
		if (ack->undecided == 0)
			answer(ack);
		else
		{
			if (ack->deadline == 0)
				ack->deadline = clock_ms() + bundle->acks->worker->conf->lock_timeout_ms;
			DL_APPEND(bundle->acks->turned_away, ack);
		}
	}
	PQclear(res);
	free(bundle);
}

const char *
ack_status_name(AckStatus status)
{
	static const char *const names[] = {"completed", "failed", "retry", "dlq"};

	return names[status];
}

/* Whether they have all but the transaction id in common. */
static bool
alike(const AckItem *a, const AckItem *b)
{
	return memcmp(&a->partition_id, &b->partition_id, sizeof(Uuid)) == 0 &&
		   a->has_lease == b->has_lease &&
		   (!a->has_lease || memcmp(&a->lease_id, &b->lease_id, sizeof(Uuid)) == 0) &&
		   a->status == b->status && span_equals(a->error_text, b->error_text);
}

static void
add_entry(DbCall *call, const AckRequest *ack, int number, const AckItem *item, int count)
{
	PgArray *params = call->params;

	pgarray_add_uuid(&params[0], &ack->req->tenant);
	pgarray_add_uuid(&params[1], &item->partition_id);
	pgarray_add_span(&params[2], ack->group);
	pgarray_add_uuid(&params[3], item->has_lease ? &item->lease_id : NULL);
	pgarray_add_int(&params[4], number);
	pgarray_add_span(&params[5], span_of(ack_status_name(item->status)));
	pgarray_add_span(&params[6], item->error_text);
	pgarray_add_int(&params[7], count);
}

/* How many messages it had. */
static int
add_request(DbCall *call, const AckRequest *ack, int number)
{
	int count = 0; /* of the entry so far */
	int added = 0;
	size_t next;

	for (size_t i = next_undecided(ack, 0); i < ack->n; i = next)
	{
		const AckItem *item = &ack->items[i];

		pgarray_add_span(&call->params[8], item->transaction_id);
		added++;
		count++;
		next = next_undecided(ack, i + 1);
		if (next == ack->n || !alike(item, &ack->items[next]))
		{
			add_entry(call, ack, number, item, count);
			count = 0;
		}
	}
	return added;
}

/* The call of as many of the list's first requests as go together. */
static DbCall *
bundle_call(Acks *acks, AckRequest **list, DbLaneId lane, int max)
{
	static const Oid types[ACK_ARRAYS] = {OID_UUID, OID_UUID, OID_TEXT, OID_UUID, OID_INT4,
										  OID_TEXT, OID_TEXT, OID_INT4, OID_TEXT};
	AckBundle *bundle = calloc(1, sizeof(*bundle));
	DbCall *call = db_call_new(CALL_ACK, on_acked, bundle);
	int items = 0;

	bundle->acks = acks;
	for (int i = 0; i < ACK_ARRAYS; i++)
		db_call_array(call, i, types[i]);
	while (*list && bundle->n < max && items < BUNDLE_MAX_ITEMS)
	{
		AckRequest *ack = *list;

		if (ack->alone && bundle->n > 0)
			break;
		DL_DELETE(*list, ack);
		items += add_request(call, ack, bundle->n);
		bundle->members[bundle->n++] = ack;
		if (ack->alone)
			break;
	}
	for (int i = 0; i < ACK_ARRAYS; i++)
		pgarray_end(&call->params[i]);
	db_call_bool(call, ACK_ARRAYS, lane == LANE_WAIT);
	bundle->lane = lane;
	if (lane == LANE_READ)
		inflight_sent(&acks->worker->reads, bundle->n);
	return call;
}

static void
fail_list(AckRequest **list)
{
	while (*list)
	{
		AckRequest *ack = *list;

		DL_DELETE(*list, ack);
		http_reply_error(ack->req, 503, "database not available");
	}
}

void
acks_tick(Acks *acks)
{
	int64_t now = clock_ms();

	while (acks->turned_away)
	{
		AckRequest *ack = acks->turned_away;

		DL_DELETE(acks->turned_away, ack);
		if (ack->deadline >= now)
			DL_APPEND(acks->queue, ack);
		else
			http_reply_error(ack->req, 503, "the cursor is held by another session");
	}
}

int
acks_ready(const Acks *acks, int max)
{
	int n = 0;

	for (const AckRequest *ack = acks->queue; ack && n < max; ack = ack->next)
		n++;
	return n;
}

DbCall *
acks_next_call(Acks *acks)
{
	if (acks->queue == NULL)
		return NULL;
	return bundle_call(acks, &acks->queue, LANE_READ, BUNDLE_MAX_REQUESTS);
}

void
acks_dispatch(Acks *acks)
{
	Db *db = acks->worker->db;

	/* A place to wait for everybody is not to be had: the others try again at the next tick. */
	while (acks->turned_away && db_lane_spare(db, LANE_WAIT))
		db_submit(db, LANE_WAIT, bundle_call(acks, &acks->turned_away, LANE_WAIT, 1));
	if (db_lane_down(db, LANE_READ))
		fail_list(&acks->queue);
	if (db_lane_down(db, LANE_WAIT))
		fail_list(&acks->turned_away);
}

/* --- reading the body ------------------------------------------------------ */

/* PostgreSQL's text cannot hold NUL; only an escape brings one, so the text is ours to change. */
static bool
parse_error_text(Body *body, Span *out)
{
	Buf *strings = body->strings;
	size_t start = strings->len;
	char *nul;

	if (!body_text(body, "error", true, out))
		return false;
	while ((nul = memchr(strings->data + start, '\0', strings->len - start)) != NULL)
		*nul = ' ';
	return true;
}

/* Exact and case-sensitive; any other text is a failure. */
static AckStatus
status_of(Span text)
{
	static const char *const completed[] = {"completed", "success", "acked", "ok"};

	if (text.ptr == NULL)
		return ACK_COMPLETED;
	for (size_t i = 0; i < sizeof(completed) / sizeof(completed[0]); i++)
		if (span_equals(text, span_of(completed[i])))
			return ACK_COMPLETED;
	if (span_equals(text, SPAN_LITERAL("retry")))
		return ACK_RETRY;
	if (span_equals(text, SPAN_LITERAL("dlq")))
		return ACK_DEAD_LETTER;
	return ACK_FAILED;
}

static AckItem *
new_item(AckRequest *ack)
{
	AckItem *item;

	if (ack->n == ack->cap)
	{
		size_t cap = ack->cap ? 2 * ack->cap : 4;
		AckItem *items = realloc(ack->items, cap * sizeof(*items));

		if (items == NULL)
			return NULL;
		ack->items = items;
		ack->cap = cap;
	}
	item = &ack->items[ack->n++];
	memset(item, 0, sizeof(*item));
	return item;
}

bool
ack_item_member(Body *body, AckItem *item, const JsonValue *key, bool *known)
{
	*known = true;
	if (json_string_equals(key, "transactionId"))
		return body_text(body, "transactionId", true, &item->transaction_id);
	if (json_string_equals(key, "partitionId"))
		return body_text(body, "partitionId", true, &item->partition_text);
	if (json_string_equals(key, "leaseId"))
		return body_text(body, "leaseId", true, &item->lease_text);
	if (json_string_equals(key, "error"))
		return parse_error_text(body, &item->error_text);
	if (json_string_equals(key, "consumerGroup"))
		return body_text(body, "consumerGroup", true, &item->group);
	if (json_string_equals(key, "status"))
	{
		if (!body_text(body, "status", true, &item->status_text))
			return false;
		item->status = status_of(item->status_text);
		return true;
	}
	*known = false;
	return true;
}

static bool
parse_item(Body *body, AckItem *item)
{
	JsonValue key, ignored;
	bool known;

	if (item == NULL)
		return body_out_of_memory(body);
	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
		if (!ack_item_member(body, item, &key, &known) ||
			(!known && !json_value(&body->reader, &ignored)))
			return false;
	return body->reader.error == NULL;
}

static bool
parse_single(Body *body, AckRequest *ack)
{
	AckItem *item = new_item(ack);

	if (!parse_item(body, item) || !json_end(&body->reader))
		return false;
	ack->group = item->group;
	if (item->transaction_id.len == 0)
		return body_fail(body, "transactionId", "is required");
	if (item->partition_text.len == 0)
		return body_fail(body, "partitionId", "is required");
	return true;
}

static bool
parse_items(Body *body, AckRequest *ack)
{
	if (!json_enter_array(&body->reader))
		return false;
	while (json_next_element(&body->reader))
	{
		if (ack->n == ITEMS_MAX)
			return body_too_many(body, "acknowledgments", ITEMS_MAX);
		if (!parse_item(body, new_item(ack)))
			return false;
	}
	return body->reader.error == NULL;
}

static bool
parse_batch(Body *body, AckRequest *ack)
{
	JsonValue key, ignored;
	bool seen = false;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		if (json_string_equals(&key, "consumerGroup"))
		{
			if (!body_text(body, "consumerGroup", true, &ack->group))
				return false;
		}
		else if (json_string_equals(&key, "acknowledgments"))
		{
			if (seen)
				return body_fail(body, "acknowledgments", "appears twice");
			seen = true;
			if (!parse_items(body, ack))
				return false;
		}
		else if (!json_value(&body->reader, &ignored))
			return false;
	}
	if (!json_end(&body->reader))
		return false;
	return seen || body_fail(body, "acknowledgments", "is required and must be an array");
}

const char *
ack_item_check(AckItem *item)
{
	if (item->transaction_id.ptr == NULL)
		item->transaction_id = SPAN_LITERAL("");
	if (item->transaction_id.len == 0)
		return "transactionId is required";
	if (transaction_id_check(item->transaction_id) != NULL)
		return "unresolved transaction id";
	if (item->partition_text.len == 0)
		return "partitionId is required";
	if (!uuid_parse(item->partition_text.ptr, item->partition_text.len, &item->partition_id))
		return "partitionId is not a UUID";
	item->has_lease = item->lease_text.len > 0;
	if (item->has_lease && !uuid_parse(item->lease_text.ptr, item->lease_text.len, &item->lease_id))
		return "invalid or expired lease";
	return NULL;
}

static void
handle(Request *req, bool (*parse)(Body *body, AckRequest *ack))
{
	AckRequest *ack = calloc(1, sizeof(*ack));
	const char *why;
	Body body;

	req->ctx = ack;
	req->on_done = on_done;
	ack->req = req;
	ack->acks = req->worker->acks;
	metrics_add(&req->worker->metrics, METRIC_ACK_REQUESTS, 1);
	if (!body_begin(&body, req, &ack->strings) || !parse(&body, ack))
	{
		body_refuse(&body, req);
		return;
	}
	http_hold(req, ack->cap * sizeof(*ack->items));
	if (ack->group.len == 0)
		ack->group = span_of(QUEUE_MODE_GROUP);
	if ((why = name_check(ack->group)) != NULL)
	{
		body_fail(&body, "consumerGroup", why);
		body_refuse(&body, req);
		return;
	}
	for (size_t i = 0; i < ack->n; i++)
	{
		if ((why = ack_item_check(&ack->items[i])) != NULL)
			fail_item(&ack->items[i], why);
		else
			ack->undecided++;
	}
	if (ack->undecided == 0)
		answer(ack);
	else
		DL_APPEND(ack->acks->queue, ack);
}

void
ack_handler(Request *req)
{
	handle(req, parse_single);
}

void
ack_batch_handler(Request *req)
{
	handle(req, parse_batch);
}
