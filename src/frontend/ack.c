/*
 * ack.c
 *		POST /api/v1/ack and /api/v1/ack/batch
 *
 * Requests that arrive while a call is in flight go out together in the next
 * one; each stays an acknowledgement of its own.  What another session's lock
 * turned away goes out again alone, where it may wait.
 */
#include "ack.h"

#include "clock.h"
#include "conf.h"
#include "db.h"
#include "json.h"
#include "names.h"
#include "pop.h"
#include "protocol.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#define ENVELOPE_DEPTH 64
#define ITEMS_MAX 100000
#define BUNDLE_MAX_REQUESTS 64
#define BUNDLE_MAX_ITEMS 10000 /* checked before the last request is added */

typedef enum AckStatus
{
	ACK_COMPLETED,
	ACK_FAILED,
	ACK_RETRY,
	ACK_DEAD_LETTER
} AckStatus;

typedef struct AckItem
{
	/* as asked */
	Span transaction_id; /* ptr NULL: missing */
	Span partition_text, lease_text, error_text;
	Span group; /* single form only; a batch has one group */
	AckStatus status;
	bool has_lease;
	Uuid partition_id, lease_id;

	/* as answered */
	bool decided;
	bool success, lease_released, dead_lettered, noop;
	char *error;
} AckItem;

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
	int64_t deadline; /* of the turned away, monotonic milliseconds */
	Buf strings;	  /* unescaped texts; never grows beyond the body */
} AckRequest;

struct Acks
{
	struct Worker *worker;
	AckRequest *queue;
	AckRequest *turned_away;
};

/* One log_ack call: whose entries it holds, in order. */
typedef struct AckBundle
{
	Acks *acks;
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
append_item(Buf *out, size_t index, const AckItem *item)
{
	buf_printf(out, "%s{\"index\":%zu,\"transactionId\":", index ? "," : "", index);
	json_write_string(out, item->transaction_id.ptr, item->transaction_id.len);
	buf_printf(out, ",\"success\":%s,\"error\":", item->success ? "true" : "false");
	if (item->error)
		json_write_string(out, item->error, strlen(item->error));
	else
		buf_append_str(out, "null");
	buf_printf(out, ",\"leaseReleased\":%s,\"dlq\":%s,\"noop\":%s}",
			   item->lease_released ? "true" : "false", item->dead_lettered ? "true" : "false",
			   item->noop ? "true" : "false");
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

static void
item_verdict(AckRequest *ack, AckItem *item, const PGresult *res, int row)
{
	Span error = pgcol_span(res, row, ACK_ERROR);
	Span queue = pgcol_span(res, row, ACK_QUEUE);

	if (pgcol_bool(res, row, ACK_BUSY))
		return;
	item->decided = true;
	item->success = pgcol_bool(res, row, ACK_SUCCESS);
	item->lease_released = pgcol_bool(res, row, ACK_LEASE_RELEASED);
	item->dead_lettered = pgcol_bool(res, row, ACK_DLQ);
	item->noop = pgcol_bool(res, row, ACK_NOOP);
	item->error = error.ptr ? strndup(error.ptr, error.len) : NULL;
	ack->undecided--;
	metrics_add(&ack->acks->worker->metrics, METRIC_ACK_MESSAGES, item->success);
	if (item->lease_released && pgcol_bool(res, row, ACK_MORE) && queue.ptr)
	{
		Span partition = pgcol_span(res, row, ACK_PARTITION);

		pops_wake_group(ack->acks->worker->pops, &ack->req->tenant, queue, partition, ack->group);
		worker_wake_others(ack->acks->worker, &ack->req->tenant, queue, partition);
	}
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
		/* Entries were sent in this same order. */
		for (size_t j = 0; j < ack->n; j++)
			if (!ack->items[j].decided)
				item_verdict(ack, &ack->items[j], res, row++);
		if (ack->undecided == 0)
			answer(ack);
		else
		{
			ack->deadline = clock_ms() + bundle->acks->worker->conf->lock_timeout_ms;
			DL_APPEND(bundle->acks->turned_away, ack);
		}
	}
	PQclear(res);
	free(bundle);
}

static int
add_request(DbCall *call, const AckRequest *ack, int number)
{
	static const char *const names[] = {"completed", "failed", "retry", "dlq"};
	PgArray *params = call->params;
	int added = 0;

	for (size_t i = 0; i < ack->n; i++)
	{
		const AckItem *item = &ack->items[i];

		if (item->decided)
			continue;
		pgarray_add_uuid(&params[0], &ack->req->tenant);
		pgarray_add_uuid(&params[1], &item->partition_id);
		pgarray_add_span(&params[2], ack->group);
		pgarray_add_uuid(&params[3], item->has_lease ? &item->lease_id : NULL);
		pgarray_add_int(&params[4], number);
		pgarray_add_span(&params[5], item->transaction_id);
		pgarray_add_span(&params[6], span_of(names[item->status]));
		pgarray_add_span(&params[7], item->error_text);
		added++;
	}
	return added;
}

static void
send_bundle(Acks *acks, AckRequest **list, DbLaneId lane, int max)
{
	static const Oid types[] = {OID_UUID, OID_UUID, OID_TEXT, OID_UUID,
								OID_INT4, OID_TEXT, OID_TEXT, OID_TEXT};
	AckBundle *bundle = calloc(1, sizeof(*bundle));
	DbCall *call = db_call_new(CALL_ACK, on_acked, bundle);
	int items = 0;

	bundle->acks = acks;
	for (int i = 0; i < 8; i++)
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
	for (int i = 0; i < 8; i++)
		pgarray_end(&call->params[i]);
	db_call_bool(call, 8, lane == LANE_WAIT);
	db_submit(acks->worker->db, lane, call);
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

	/* They were turned away in this order, all with the same time limit. */
	while (acks->turned_away && acks->turned_away->deadline < now)
	{
		AckRequest *ack = acks->turned_away;

		DL_DELETE(acks->turned_away, ack);
		http_reply_error(ack->req, 503, "the cursor is held by another session");
	}
}

void
acks_dispatch(Acks *acks)
{
	Db *db = acks->worker->db;

	while (acks->queue && db_lane_free(db, LANE_READ))
		send_bundle(acks, &acks->queue, LANE_READ, BUNDLE_MAX_REQUESTS);
	while (acks->turned_away && db_lane_free(db, LANE_WAIT))
		send_bundle(acks, &acks->turned_away, LANE_WAIT, 1);
	if (db_lane_down(db, LANE_READ))
		fail_list(&acks->queue);
	if (db_lane_down(db, LANE_WAIT))
		fail_list(&acks->turned_away);
}

/* --- reading the body ------------------------------------------------------ */

typedef struct Parse
{
	AckRequest *ack;
	JsonReader reader;
	char error[160];
} Parse;

static bool
parse_fail(Parse *p, const char *field, const char *what)
{
	snprintf(p->error, sizeof(p->error), "%s %s", field, what);
	return false;
}

/* A string or null (absent).  A repeated member is an error. */
static bool
parse_text(Parse *p, const char *field, Span *out)
{
	Buf *strings = &p->ack->strings;
	size_t start = strings->len;
	JsonValue value;

	if (out->ptr)
		return parse_fail(p, field, "appears twice");
	if (!json_value(&p->reader, &value))
		return false;
	if (value.type == JSON_NULL)
		return true;
	if (value.type != JSON_STRING)
		return parse_fail(p, field, "must be a string");
	*out = (Span){value.text.ptr + 1, value.text.len - 2};
	if (value.escaped)
	{
		json_string_decode(&value, strings);
		*out = (Span){strings->data + start, strings->len - start};
	}
	return true;
}

/* PostgreSQL's text cannot hold NUL; only an escape brings one, so the text is ours to change. */
static bool
parse_error_text(Parse *p, Span *out)
{
	size_t start = p->ack->strings.len;
	char *nul;

	if (!parse_text(p, "error", out))
		return false;
	while ((nul = memchr(p->ack->strings.data + start, '\0', p->ack->strings.len - start)) != NULL)
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

/* Members of one acknowledgement. */
static bool
parse_item(Parse *p, AckItem *item)
{
	JsonValue key, ignored;
	Span status = {NULL, 0};

	if (item == NULL)
	{
		snprintf(p->error, sizeof(p->error), "more than %d acknowledgments, or out of memory",
				 ITEMS_MAX);
		return false;
	}
	if (!json_enter_object(&p->reader))
		return false;
	while (json_next_key(&p->reader, &key))
	{
		bool ok;

		if (json_string_equals(&key, "transactionId"))
			ok = parse_text(p, "transactionId", &item->transaction_id);
		else if (json_string_equals(&key, "partitionId"))
			ok = parse_text(p, "partitionId", &item->partition_text);
		else if (json_string_equals(&key, "leaseId"))
			ok = parse_text(p, "leaseId", &item->lease_text);
		else if (json_string_equals(&key, "error"))
			ok = parse_error_text(p, &item->error_text);
		else if (json_string_equals(&key, "consumerGroup"))
			ok = parse_text(p, "consumerGroup", &item->group);
		else if (json_string_equals(&key, "status"))
		{
			ok = parse_text(p, "status", &status);
			item->status = ok ? status_of(status) : ACK_FAILED;
		}
		else
			ok = json_value(&p->reader, &ignored);
		if (!ok)
			return false;
	}
	return p->reader.error == NULL;
}

static bool
parse_single(Parse *p)
{
	AckItem *item = new_item(p->ack);

	if (!parse_item(p, item) || !json_end(&p->reader))
		return false;
	p->ack->group = item->group;
	if (item->transaction_id.len == 0)
		return parse_fail(p, "transactionId", "is required");
	if (item->partition_text.len == 0)
		return parse_fail(p, "partitionId", "is required");
	return true;
}

static bool
parse_batch(Parse *p)
{
	JsonValue key, ignored;
	bool seen = false;

	if (!json_enter_object(&p->reader))
		return false;
	while (json_next_key(&p->reader, &key))
	{
		if (json_string_equals(&key, "consumerGroup"))
		{
			if (!parse_text(p, "consumerGroup", &p->ack->group))
				return false;
		}
		else if (json_string_equals(&key, "acknowledgments"))
		{
			if (seen)
				return parse_fail(p, "acknowledgments", "appears twice");
			seen = true;
			if (!json_enter_array(&p->reader))
				return false;
			while (json_next_element(&p->reader))
				if (!parse_item(p, p->ack->n < ITEMS_MAX ? new_item(p->ack) : NULL))
					return false;
		}
		else if (!json_value(&p->reader, &ignored))
			return false;
	}
	if (!json_end(&p->reader))
		return false;
	return seen || parse_fail(p, "acknowledgments", "is required and must be an array");
}

/* What can be decided without the database. */
static void
check_item(AckItem *item)
{
	if (item->transaction_id.ptr == NULL)
		item->transaction_id = SPAN_LITERAL("");
	if (item->transaction_id.len == 0)
		fail_item(item, "transactionId is required");
	else if (transaction_id_check(item->transaction_id) != NULL)
		fail_item(item, "unresolved transaction id");
	else if (item->partition_text.len == 0)
		fail_item(item, "partitionId is required");
	else if (!uuid_parse(item->partition_text.ptr, item->partition_text.len, &item->partition_id))
		fail_item(item, "partitionId is not a UUID");
	else if (item->lease_text.len > 0)
	{
		item->has_lease = true;
		if (!uuid_parse(item->lease_text.ptr, item->lease_text.len, &item->lease_id))
			fail_item(item, "invalid or expired lease");
	}
}

static void
handle(Request *req, bool (*parse)(Parse *p))
{
	AckRequest *ack = calloc(1, sizeof(*ack));
	Parse p = {.ack = ack};
	const char *why;

	req->ctx = ack;
	req->on_done = on_done;
	ack->req = req;
	ack->acks = req->worker->acks;
	metrics_add(&req->worker->metrics, METRIC_ACK_REQUESTS, 1);
	if (!buf_reserve(&ack->strings, req->body.len + 1))
	{
		http_reply_error(req, 503, "out of memory");
		return;
	}
	json_begin(&p.reader, req->body.data, req->body.len, ENVELOPE_DEPTH);
	if (!parse(&p))
	{
		if (p.error[0] == '\0')
			snprintf(p.error, sizeof(p.error), "bad body: %s at byte %zu", p.reader.error,
					 (size_t) (p.reader.pos - p.reader.start));
		http_reply_error(req, 400, p.error);
		return;
	}
	if (ack->group.len == 0)
		ack->group = span_of(QUEUE_MODE_GROUP);
	if ((why = name_check(ack->group)) != NULL)
	{
		snprintf(p.error, sizeof(p.error), "consumerGroup %s", why);
		http_reply_error(req, 400, p.error);
		return;
	}
	for (size_t i = 0; i < ack->n; i++)
	{
		check_item(&ack->items[i]);
		ack->undecided += !ack->items[i].decided;
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
