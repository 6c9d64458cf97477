/*
 * transaction.c
 *		POST /api/v1/transaction: {"operations":[{type, ...}, ...], "requiredLeases":[...]}
 *
 * Pushes and acknowledgements of one request in one database transaction.
 * They travel alone, because they commit or roll back alone, and may wait for
 * locks.  A refusal is a 200 with "success": false.
 */
#include "transaction.h"

#include "ack.h"
#include "db.h"
#include "names.h"
#include "pop.h"
#include "protocol.h"
#include "push_targets.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>

#define RESULTS_MAX 10000 /* pushed messages and acknowledgements of one transaction */

/* One element of the answer, in request order. */
typedef struct Result
{
	bool is_ack;
	size_t index; /* into pushes or acks */
} Result;

typedef struct Transaction
{
	Request *req;
	Uuid id;
	PushEntries pushes;
	AckItem *acks;
	size_t n_acks;
	Result *results;
	size_t n_results;
	PgArray leases;
	Buf strings; /* unescaped texts; never grows beyond the body */

	Targets targets; /* what is stored */
} Transaction;

static void
on_done(Request *req, bool delivered)
{
	Transaction *t = req->ctx;

	(void) delivered;
	for (size_t i = 0; i < t->n_acks; i++)
		free(t->acks[i].error);
	push_entries_free(&t->pushes);
	free(t->acks);
	free(t->results);
	buf_free(&t->leases.buf);
	buf_free(&t->strings);
	targets_free(&t->targets);
	free(t);
}

/* --- the answer ------------------------------------------------------------ */

static void
append_head(Buf *out, const Transaction *t, bool success)
{
	char id[UUID_TEXT_LEN];

	uuid_format(&t->id, id);
	buf_printf(out, "{\"transactionId\":\"%.*s\",\"success\":%s", UUID_TEXT_LEN, id,
			   success ? "true" : "false");
}

static void
fail(Transaction *t, int status, const char *reason, Span error)
{
	Buf body = {0};

	append_head(&body, t, false);
	buf_append_str(&body, ",\"error\":");
	json_write_string(&body, error.ptr, error.len);
	buf_printf(&body, ",\"reason\":\"%s\",\"results\":[]}", reason);
	http_reply(t->req, status, &body);
}

static void
append_push(Buf *out, const Transaction *t, const PushEntry *entry)
{
	const PushItem *stored = &entry->item;
	char id[UUID_TEXT_LEN];

	if (entry->leader >= 0)
		stored = &t->pushes.list[entry->leader].item;
	uuid_format(&stored->message_id, id);
	buf_append_str(out, ",\"type\":\"push\",\"success\":true,\"transactionId\":");
	json_write_string(out, entry->item.transaction_id.ptr, entry->item.transaction_id.len);
	buf_printf(out, ",\"messageId\":\"%.*s\",\"queueName\":", UUID_TEXT_LEN, id);
	json_write_string(out, entry->queue.ptr, entry->queue.len);
	buf_append_str(out, ",\"partition\":");
	json_write_string(out, entry->partition.ptr, entry->partition.len);
	buf_append_str(out, entry->leader >= 0 ? ",\"duplicate\":true}" : "}");
}

static void
append_ack(Buf *out, const AckItem *ack)
{
	buf_printf(out, ",\"type\":\"ack\",\"success\":%s,\"transactionId\":",
			   ack->success ? "true" : "false");
	json_write_string(out, ack->transaction_id.ptr, ack->transaction_id.len);
	buf_append_str(out, ",\"error\":");
	json_write_text(out, span_of(ack->error));
	buf_printf(out, ",\"leaseReleased\":%s,\"dlq\":%s,\"noop\":%s}",
			   ack->lease_released ? "true" : "false", ack->dead_lettered ? "true" : "false",
			   ack->noop ? "true" : "false");
}

static void
succeed(Transaction *t)
{
	Buf body = {0};

	append_head(&body, t, true);
	buf_append_str(&body, ",\"results\":[");
	for (size_t i = 0; i < t->n_results; i++)
	{
		buf_printf(&body, "%s{\"index\":%zu", i ? "," : "", i);
		if (t->results[i].is_ack)
			append_ack(&body, &t->acks[t->results[i].index]);
		else
			append_push(&body, t, &t->pushes.list[t->results[i].index]);
	}
	buf_append_str(&body, "]}");
	http_reply(t->req, 200, &body);
}

/* --- the call -------------------------------------------------------------- */

static void send_call(Transaction *t);

/* One lease has ended, however many of its messages are acknowledged: one pop is woken. */
static bool
same_lease_as_before(const Transaction *t, const AckItem *ack)
{
	return ack > t->acks && ack[-1].lease_released &&
		   memcmp(&ack[-1].partition_id, &ack->partition_id, sizeof(Uuid)) == 0 &&
		   span_equals(ack[-1].group, ack->group);
}

static void
ack_verdict(Transaction *t, const PGresult *res, int row)
{
	AckItem *ack = &t->acks[pgcol_int(res, row, TXN_ENTRY) - 1];
	Worker *worker = t->req->worker;
	Span error = pgcol_span(res, row, TXN_ERROR);
	Span queue = pgcol_span(res, row, TXN_QUEUE);

	ack->success = pgcol_bool(res, row, TXN_SUCCESS);
	ack->error = error.ptr ? strndup(error.ptr, error.len) : NULL;
	ack->lease_released = pgcol_bool(res, row, TXN_LEASE_RELEASED);
	ack->dead_lettered = pgcol_bool(res, row, TXN_DLQ);
	ack->noop = pgcol_bool(res, row, TXN_NOOP);
	metrics_add(&worker->metrics, METRIC_ACK_MESSAGES, ack->success);
	if (ack->lease_released && pgcol_bool(res, row, TXN_MORE) && queue.ptr &&
		!same_lease_as_before(t, ack))
	{
		Span partition = pgcol_span(res, row, TXN_PARTITION);

		pops_wake_group(worker->pops, &t->req->tenant, queue, partition, ack->group);
		worker_wake_others(worker, &t->req->tenant, queue, partition);
	}
}

static void
committed(Transaction *t, const PGresult *res)
{
	Worker *worker = t->req->worker;

	for (const PushTarget *target = t->targets.list; target; target = target->next)
	{
		metrics_add(&worker->metrics, METRIC_PUSH_MESSAGES, target->n);
		pops_wake_partition(worker->pops, &t->req->tenant, target->queue, target->partition);
		worker_wake_others(worker, &t->req->tenant, target->queue, target->partition);
	}
	for (int row = 1; row < PQntuples(res); row++)
		ack_verdict(t, res, row);
	succeed(t);
}

/* Some queues are encrypted: only the database knows for certain which. */
static bool
encrypt_targets(Transaction *t, const PGresult *res)
{
	if (t->req->worker->crypt == NULL)
		return false;
	for (int row = 1; row < PQntuples(res); row++)
	{
		PushTarget *target = t->targets.segments[pgcol_int(res, row, TXN_ENTRY) - 1].target;

		if (target->encrypt)
			return false;
		target->encrypt = true;
	}
	return true;
}

static void
on_verdict(DbCall *call, PGresult *res, const DbError *error)
{
	Transaction *t = call->ctx;
	Span reason;

	if (error)
	{
		int status = db_error_status(error);

		metrics_add(&t->req->worker->metrics, METRIC_DB_ERRORS, 1);
		fail(t, status == 503 ? 503 : 200, "db_error", span_of(error->message));
		return;
	}
	reason = pgcol_span(res, 0, TXN_REASON);
	if (pgcol_bool(res, 0, TXN_SUCCESS))
		committed(t, res);
	else if (!span_equals(reason, SPAN_LITERAL("clear")))
	{
		char text[32];

		snprintf(text, sizeof(text), "%.*s", (int) reason.len, reason.ptr);
		fail(t, 200, text, pgcol_span(res, 0, TXN_ERROR));
	}
	else if (encrypt_targets(t, res))
		send_call(t);
	else
		fail(t, 200, "bad_request",
			 SPAN_LITERAL("the queue is encrypted and this server has no key"));
	PQclear(res);
}

static void
add_ack(DbCall *call, const AckItem *ack)
{
	pgarray_add_uuid(&call->params[6], &ack->partition_id);
	pgarray_add_span(&call->params[7], ack->group);
	pgarray_add_uuid(&call->params[8], ack->has_lease ? &ack->lease_id : NULL);
	pgarray_add_span(&call->params[9], ack->transaction_id);
	pgarray_add_span(&call->params[10], span_of(ack_status_name(ack->status)));
	pgarray_add_span(&call->params[11], ack->error_text);
}

static void
send_call(Transaction *t)
{
	static const Oid ack_types[] = {OID_UUID, OID_TEXT, OID_UUID, OID_TEXT, OID_TEXT, OID_TEXT};
	DbCall *call = db_call_new(CALL_TRANSACTION, on_verdict, t);
	PgArray *leases = &call->params[12];
	SegmentColumns columns;

	db_call_uuid(call, 0, &t->req->tenant);
	segment_columns_begin(&columns, call->params, 1);
	for (int i = 0; i < 6; i++)
		db_call_array(call, 6 + i, ack_types[i]);
	t->targets.n_segments = 0;
	for (PushTarget *target = t->targets.list; target; target = target->next)
		if (!targets_pack(&t->targets, target, target->n, t->req->worker, &columns))
		{
			db_call_free(call);
			fail(t, 503, "db_error", SPAN_LITERAL("out of memory"));
			return;
		}
	for (size_t i = 0; i < t->n_acks; i++)
		add_ack(call, &t->acks[i]);
	segment_columns_end(&columns);
	for (int i = 6; i < 12; i++)
		pgarray_end(&call->params[i]);
	buf_append(&leases->buf, t->leases.buf.data, t->leases.buf.len);
	leases->buf.failed |= t->leases.buf.failed;
	metrics_add(&t->req->worker->metrics, METRIC_PUSH_SEGMENTS, t->targets.n_segments);
	db_submit(t->req->worker->db, LANE_WAIT, call);
}

/* Gathers the messages by partition; a repeated id is not stored again. */
static void
gather_targets(Transaction *t)
{
	for (size_t i = 0; i < t->pushes.n; i++)
	{
		PushEntry *entry = &t->pushes.list[i];

		if (entry->leader >= 0)
			continue;
		push_item_mint(&entry->item);
		targets_add(&t->targets, &t->req->tenant, entry->queue, entry->partition, &entry->item);
	}
}

/* --- reading the body ------------------------------------------------------ */

/* Makes room for one more in a list that doubles. */
static bool
grow(Body *body, void *list, size_t n, size_t size)
{
	void *bigger;

	if ((n & (n - 1)) != 0)
		return true;
	memcpy(&bigger, list, sizeof(bigger));
	bigger = realloc(bigger, (n > 0 ? 2 * n : 1) * size);
	if (bigger == NULL)
		return body_out_of_memory(body);
	memcpy(list, &bigger, sizeof(bigger));
	return true;
}

static bool
add_result(Transaction *t, Body *body, bool is_ack, size_t index)
{
	if (t->n_results == RESULTS_MAX)
	{
		body->list = NULL;
		return body_too_many(body, "operations", RESULTS_MAX);
	}
	if (!grow(body, &t->results, t->n_results, sizeof(*t->results)))
		return false;
	t->results[t->n_results++] = (Result){is_ack, index};
	return true;
}

static bool
add_push(Transaction *t, Body *body, PushEntry *entry)
{
	PushEntry *added;

	if (entry->item.payload.ptr == NULL)
		entry->item.payload = SPAN_LITERAL("{}");
	if (!push_entry_check(body, entry) || !add_result(t, body, false, t->pushes.n))
		return false;
	if ((added = push_entries_add(&t->pushes)) == NULL)
		return body_out_of_memory(body);
	*added = *entry;
	added->item.producer_sub = span_of(t->req->subject);
	return true;
}

static bool
add_ack_item(Transaction *t, Body *body, AckItem *ack)
{
	const char *why;

	if (ack->transaction_id.len == 0)
		return body_fail(body, "transactionId", "is required");
	if (ack->partition_text.len == 0)
		return body_fail(body, "partitionId", "is required");
	if (!uuid_parse(ack->partition_text.ptr, ack->partition_text.len, &ack->partition_id))
		return body_fail(body, "partitionId", "is not a UUID");
	if (ack->group.len == 0)
		ack->group = span_of(QUEUE_MODE_GROUP);
	if ((why = name_check(ack->group)) != NULL)
		return body_fail(body, "consumerGroup", why);
	if (!add_result(t, body, true, t->n_acks) || !grow(body, &t->acks, t->n_acks, sizeof(*t->acks)))
		return false;
	t->acks[t->n_acks++] = *ack;
	return true;
}

static bool
parse_trace_id(Body *body, PushEntry *entry)
{
	Span text = {NULL, 0};

	if (!body_text(body, "traceId", true, &text))
		return false;
	if (text.ptr == NULL)
		return true;
	entry->item.has_trace = uuid_parse(text.ptr, text.len, &entry->item.trace_id);
	return entry->item.has_trace || body_fail(body, "traceId", "is not a UUID");
}

/* Members of a pushed message as they are here; the others are as everywhere. */
static bool
parse_push_member(Body *body, PushEntry *entry, const JsonValue *key, bool *known)
{
	*known = true;
	if (json_string_equals(key, "data"))
		return push_entry_payload(body, "data", entry);
	if (json_string_equals(key, "traceId"))
		return parse_trace_id(body, entry);
	return push_entry_member(body, entry, key, known);
}

static bool
parse_items(Transaction *t, Body *body)
{
	const char *list = body->list;
	size_t operation = body->index;
	char name[48];

	snprintf(name, sizeof(name), "operations[%zu].items", operation);
	if (!json_enter_array(&body->reader))
		return false;
	body->list = name;
	body->index = 0;
	for (; json_next_element(&body->reader); body->index++)
	{
		PushEntry entry = {.leader = -1};
		JsonValue key, ignored;
		bool known;

		if (!json_enter_object(&body->reader))
			return false;
		while (json_next_key(&body->reader, &key))
			if (!parse_push_member(body, &entry, &key, &known) ||
				(!known && !json_value(&body->reader, &ignored)))
				return false;
		if (body->reader.error || !add_push(t, body, &entry))
			return false;
	}
	body->list = list;
	body->index = operation;
	return body->reader.error == NULL;
}

/* An operation is read before its type need be known. */
static bool
parse_operation(Transaction *t, Body *body)
{
	PushEntry push = {.leader = -1};
	AckItem ack = {.status = ACK_COMPLETED};
	Span type = {NULL, 0};
	bool has_items = false;
	JsonValue key, ignored;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		bool known = true, ok;

		if (json_string_equals(&key, "type"))
			ok = body_text(body, "type", false, &type);
		else if (json_string_equals(&key, "items"))
		{
			ok = has_items ? body_fail(body, "items", "appears twice") : parse_items(t, body);
			has_items = true;
		}
		else
		{
			ok = parse_push_member(body, &push, &key, &known);
			if (ok && !known)
				ok = ack_item_member(body, &ack, &key, &known);
			if (ok && !known)
				ok = json_value(&body->reader, &ignored);
		}
		if (!ok)
			return false;
	}
	if (body->reader.error)
		return false;
	if (span_equals(type, SPAN_LITERAL("push")))
		return has_items || add_push(t, body, &push);
	if (!span_equals(type, SPAN_LITERAL("ack")))
		return body_fail(body, "type", "must be push or ack");
	if (has_items)
		return body_fail(body, "items", "is for a push");
	ack.transaction_id = push.item.transaction_id;
	return add_ack_item(t, body, &ack);
}

static bool
parse_operations(Transaction *t, Body *body)
{
	if (!json_enter_array(&body->reader))
		return false;
	body->list = "operations";
	for (body->index = 0; json_next_element(&body->reader); body->index++)
		if (!parse_operation(t, body))
			return false;
	body->list = NULL;
	return body->reader.error == NULL;
}

/* A lease id is what a pop gave; an auto-acked one gave an empty one. */
static bool
parse_leases(Transaction *t, Body *body, bool *bad_lease)
{
	JsonType type;
	JsonValue null;

	if (!json_peek(&body->reader, &type))
		return false;
	if (type == JSON_NULL)
		return json_value(&body->reader, &null);
	if (!json_enter_array(&body->reader))
		return false;
	body->list = "requiredLeases";
	for (body->index = 0; json_next_element(&body->reader); body->index++)
	{
		Span text = {NULL, 0};
		Uuid lease;

		if (t->leases.count == RESULTS_MAX)
		{
			body->list = NULL;
			return body_too_many(body, "requiredLeases", RESULTS_MAX);
		}
		if (!body_text(body, "id", true, &text))
			return false;
		if (text.len == 0)
			continue;
		if (uuid_parse(text.ptr, text.len, &lease))
			pgarray_add_uuid(&t->leases, &lease);
		else
			*bad_lease = true;
	}
	body->list = NULL;
	return body->reader.error == NULL;
}

/* What cannot be done must not be left out of a transaction. */
static bool
parse_rider(Body *body, const char *member)
{
	JsonValue value;

	if (!json_value(&body->reader, &value))
		return false;
	return value.type == JSON_NULL || span_equals(value.text, SPAN_LITERAL("[]")) ||
		   body_fail(body, member, "is not offered by this server");
}

static bool
parse_body(Transaction *t, Body *body, bool *bad_lease)
{
	bool operations = false, leases = false;
	JsonValue key, ignored;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		bool ok;

		if (json_string_equals(&key, "operations"))
		{
			ok = operations ? body_fail(body, "operations", "appears twice")
							: parse_operations(t, body);
			operations = true;
		}
		else if (json_string_equals(&key, "requiredLeases"))
		{
			ok = leases ? body_fail(body, "requiredLeases", "appears twice")
						: parse_leases(t, body, bad_lease);
			leases = true;
		}
		else if (json_string_equals(&key, "kv"))
			ok = parse_rider(body, "kv");
		else if (json_string_equals(&key, "timers"))
			ok = parse_rider(body, "timers");
		else
			ok = json_value(&body->reader, &ignored);
		if (!ok)
			return false;
	}
	if (!json_end(&body->reader))
		return false;
	if (!operations)
		return body_fail(body, "operations", "is required and must be an array");
	return t->n_results > 0 || body_fail(body, "operations", "is empty");
}

/* What needs no database to be refused; NULL when there is no such thing. */
static const char *
refusal(Transaction *t, bool bad_lease)
{
	if (bad_lease)
		return "invalid or expired lease";
	for (size_t i = 0; i < t->n_acks; i++)
	{
		const char *why = ack_item_check(&t->acks[i]);

		if (why)
			return why;
	}
	return NULL;
}

void
transaction_handler(Request *req)
{
	Transaction *t = calloc(1, sizeof(*t));
	bool bad_lease = false;
	const char *why;
	Body body;

	req->ctx = t;
	req->on_done = on_done;
	t->req = req;
	uuid_v7(&t->id);
	pgarray_begin(&t->leases, OID_UUID);
	if (!body_begin(&body, req, &t->strings) || !parse_body(t, &body, &bad_lease))
	{
		char error[160];
		int status = body_fault(&body, error, sizeof(error));

		fail(t, status, status == 400 ? "bad_request" : "db_error", span_of(error));
		return;
	}
	pgarray_end(&t->leases);
	if ((why = refusal(t, bad_lease)) != NULL)
	{
		fail(t, 200, "ack_rejected", span_of(why));
		return;
	}
	push_entries_link(&t->pushes);
	gather_targets(t);
	send_call(t);
}
