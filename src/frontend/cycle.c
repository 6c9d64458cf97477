/*
 * cycle.c
 *		POST /streams/v1/cycle
 *
 * One call, one transaction.  It comes again, nothing of it done, when a
 * result cannot be stored as it was sent: then duplicates are left out, or the
 * results for an encrypted queue are encrypted, and it is sent again.
 */
#include "streams.h"

#include "ack.h"
#include "body.h"
#include "db.h"
#include "message.h"
#include "names.h"
#include "pop.h"
#include "protocol.h"
#include "push_targets.h"
#include "worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ELEMENTS_MAX 100000 /* of state_ops, and of push_items */
#define ATTEMPTS_MAX 5

typedef struct Cycle
{
	Request *req;
	Span query_text, partition_text, group;
	Uuid query, partition;
	PgArray keys, values, window_ends;
	long long n_operations;
	PushEntries pushes;
	bool has_ack;
	AckItem ack;
	bool keeps_lease;
	Buf strings;
	Targets targets;
	int attempts;
} Cycle;

static void
on_done(Request *req, bool delivered)
{
	Cycle *cycle = req->ctx;

	(void) delivered;
	buf_free(&cycle->keys.buf);
	buf_free(&cycle->values.buf);
	buf_free(&cycle->window_ends.buf);
	buf_free(&cycle->strings);
	push_entries_free(&cycle->pushes);
	targets_free(&cycle->targets);
	free(cycle);
}

/* --- the answer ------------------------------------------------------------ */

static void
append_id(Buf *out, const Uuid *id)
{
	char text[UUID_TEXT_LEN];

	uuid_format(id, text);
	buf_printf(out, "\"%.*s\"", UUID_TEXT_LEN, text);
}

/* Where each stored message's segment begins, by its number; the caller frees it. */
static long long *
base_offsets(const Cycle *cycle, const PGresult *res)
{
	const Targets *targets = &cycle->targets;
	long long *offsets = calloc(cycle->pushes.n + 1, sizeof(*offsets));

	if (offsets == NULL)
		abort();
	for (size_t i = 0; i < targets->n_segments; i++)
	{
		const PushSegment *segment = &targets->segments[i];
		bool last = i + 1 == targets->n_segments || segment[1].target != segment->target;
		size_t end = last ? segment->target->n : segment[1].first;

		for (size_t j = segment->first; j < end; j++)
		{
			/* An item is the first member of its entry. */
			const PushEntry *entry = (const PushEntry *) segment->target->items[j];

			offsets[entry - cycle->pushes.list] = pgcol_int64(res, (int) i + 1, CYCLE_BASE_OFFSET);
		}
	}
	return offsets;
}

static void
append_push(Buf *out, const Cycle *cycle, const PushEntry *entry, long long base_offset)
{
	const PushItem *item =
		entry->leader < 0 ? &entry->item : &cycle->pushes.list[entry->leader].item;
	bool stored = entry->leader < 0 && item->status != PUSH_DUPLICATE;

	buf_append_str(out, "{\"queue\":");
	json_write_string(out, entry->queue.ptr, entry->queue.len);
	buf_append_str(out, ",\"partition\":");
	json_write_string(out, entry->partition.ptr, entry->partition.len);
	buf_append_str(out, ",\"messageId\":");
	append_id(out, &item->message_id);
	buf_append_str(out, ",\"transactionId\":");
	json_write_string(out, entry->item.transaction_id.ptr, entry->item.transaction_id.len);
	if (stored)
		buf_printf(out, ",\"status\":\"queued\",\"baseOffset\":%lld}", base_offset);
	else
		buf_append_str(out, ",\"status\":\"duplicate\"}");
}

static void
succeed(Cycle *cycle, const PGresult *res)
{
	Span queue = pgcol_span(res, 0, CYCLE_QUEUE);
	long long *offsets = base_offsets(cycle, res);
	Buf body = {0};

	buf_append_str(&body, "{\"success\":true,\"query_id\":");
	append_id(&body, &cycle->query);
	buf_append_str(&body, ",\"partition_id\":");
	append_id(&body, &cycle->partition);
	buf_append_str(&body, ",\"queueName\":");
	json_write_string(&body, queue.ptr, queue.len);
	buf_printf(&body, ",\"state_ops_applied\":%lld,\"push_results\":[", cycle->n_operations);
	for (size_t i = 0; i < cycle->pushes.n; i++)
	{
		buf_append_str(&body, i ? "," : "");
		append_push(&body, cycle, &cycle->pushes.list[i], offsets[i]);
	}
	free(offsets);
	buf_append_str(&body, "],\"ack_result\":");
	if (cycle->has_ack)
		buf_printf(&body, "{\"success\":true,\"count\":%lld,\"lease_released\":%s,\"dlq\":false}}",
				   (long long) pgcol_int64(res, 0, CYCLE_ACKED),
				   pgcol_bool(res, 0, CYCLE_RELEASED) ? "true" : "false");
	else
		buf_append_str(&body, "null}");
	http_reply(cycle->req, 200, &body);
}

/* --- the call -------------------------------------------------------------- */

static void send_call(Cycle *cycle);

/* Wakes who waits for what was pushed, and for the source if its lease is over. */
static void
wake(const Cycle *cycle, const PGresult *res)
{
	Worker *worker = cycle->req->worker;
	const Uuid *tenant = &cycle->req->tenant;

	for (const PushTarget *target = cycle->targets.list; target; target = target->next)
	{
		metrics_add(&worker->metrics, METRIC_PUSH_MESSAGES, target->n);
		pops_wake_partition(worker->pops, tenant, target->queue, target->partition);
		worker_wake_others(worker, tenant, target->queue, target->partition);
	}
	if (cycle->has_ack && pgcol_bool(res, 0, CYCLE_RELEASED))
	{
		Span queue = pgcol_span(res, 0, CYCLE_QUEUE);
		Span partition = pgcol_span(res, 0, CYCLE_PARTITION);

		pops_wake_group(worker->pops, tenant, queue, partition, cycle->group);
		worker_wake_others(worker, tenant, queue, partition);
	}
}

/* Marks the flagged messages of a segment. */
static void
mark_duplicates(const PushSegment *segment, const PGresult *res, int row)
{
	PgArrayReader frames;
	Span frame;

	pgarray_read(&frames, res, row, CYCLE_DUPLICATE_FRAMES);
	while (pgarray_next(&frames, &frame))
	{
		size_t i = segment->first + (size_t) pgspan_int(frame);

		if (i < segment->target->n)
			segment->target->items[i]->status = PUSH_DUPLICATE;
	}
}

static void
drop_duplicates(PushTarget *target)
{
	size_t left = 0;

	for (size_t i = 0; i < target->n; i++)
		if (target->items[i]->status != PUSH_DUPLICATE)
			target->items[left++] = target->items[i];
	target->n = left;
}

/* Prepares the next attempt; NULL, or why there is none. */
static const char *
amend(Cycle *cycle, const PGresult *res)
{
	for (int row = 1; row < PQntuples(res); row++)
	{
		PushSegment *segment = &cycle->targets.segments[pgcol_int(res, row, CYCLE_ENTRY) - 1];
		Span status = pgcol_span(res, row, CYCLE_VERDICT);

		if (span_equals(status, SPAN_LITERAL("duplicate")))
			mark_duplicates(segment, res, row);
		else if (span_equals(status, SPAN_LITERAL("clear")))
		{
			if (cycle->req->worker->crypt == NULL || segment->target->encrypt)
				return "the queue is encrypted and this server has no key";
			segment->target->encrypt = true;
		}
		else if (span_equals(status, SPAN_LITERAL("invalid")))
			return "a message was refused";
	}
	for (PushTarget *target = cycle->targets.list; target; target = target->next)
		drop_duplicates(target);
	return cycle->attempts < ATTEMPTS_MAX ? NULL : "the results could not be stored";
}

static void
on_verdict(DbCall *call, PGresult *res, const DbError *error)
{
	Cycle *cycle = call->ctx;
	Span verdict;

	if (error)
	{
		int status = db_error_status(error);

		metrics_add(&cycle->req->worker->metrics, METRIC_DB_ERRORS, 1);
		stream_fail(cycle->req, status == 503 ? 503 : 200, error->message);
		return;
	}
	verdict = pgcol_span(res, 0, CYCLE_VERDICT);
	if (span_equals(verdict, SPAN_LITERAL("done")))
	{
		wake(cycle, res);
		succeed(cycle, res);
	}
	else if (span_equals(verdict, SPAN_LITERAL("again")))
	{
		const char *why = amend(cycle, res);

		if (why)
			stream_fail(cycle->req, 200, why);
		else
			send_call(cycle);
	}
	else
	{
		char text[160];

		snprintf(text, sizeof(text), "%.*s", PQgetlength(res, 0, CYCLE_ERROR),
				 PQgetvalue(res, 0, CYCLE_ERROR));
		stream_fail(cycle->req, 200, text);
	}
	PQclear(res);
}

static void
send_call(Cycle *cycle)
{
	DbCall *call = db_call_new(CALL_STREAM_CYCLE, on_verdict, cycle);
	const PgArray *arrays[] = {&cycle->keys, &cycle->values, &cycle->window_ends};
	SegmentColumns columns;

	cycle->attempts++;
	db_call_uuid(call, 0, &cycle->req->tenant);
	db_call_uuid(call, 1, &cycle->query);
	db_call_uuid(call, 2, &cycle->partition);
	for (int i = 0; i < 3; i++)
	{
		buf_append(&call->params[3 + i].buf, arrays[i]->buf.data, arrays[i]->buf.len);
		call->params[3 + i].buf.failed |= arrays[i]->buf.failed;
	}
	segment_columns_begin(&columns, call->params, 6);
	cycle->targets.n_segments = 0;
	for (PushTarget *target = cycle->targets.list; target; target = target->next)
		if (!targets_pack(&cycle->targets, target, target->n, cycle->req->worker, &columns))
		{
			db_call_free(call);
			stream_fail(cycle->req, 503, "out of memory");
			return;
		}
	segment_columns_end(&columns);
	db_call_text(call, 11, cycle->group);
	if (cycle->has_ack)
	{
		db_call_uuid(call, 12, &cycle->ack.lease_id);
		db_call_text(call, 13, cycle->ack.transaction_id);
		/* Whatever went wrong, the client will compute it again. */
		db_call_text(call, 14,
					 cycle->ack.status == ACK_COMPLETED ? SPAN_LITERAL("completed")
														: SPAN_LITERAL("retry"));
	}
	db_call_bool(call, 15, !cycle->keeps_lease && cycle->ack.status == ACK_COMPLETED);
	db_submit(cycle->req->worker->db, LANE_WAIT, call);
}

/* --- reading the body ------------------------------------------------------ */

/* The number windowEnd of a value that is an object; absent when it has none that is finite. */
static Span
window_end(const JsonValue *value)
{
	Span end = {NULL, 0};
	JsonReader reader;
	JsonValue key, member;

	if (value->type != JSON_OBJECT)
		return end;
	json_begin(&reader, value->text.ptr, value->text.len, JSON_MAX_DEPTH);
	if (!json_enter_object(&reader))
		return end;
	while (json_next_key(&reader, &key) && json_value(&reader, &member))
		if (json_string_equals(&key, "windowEnd"))
			end = member.type == JSON_NUMBER && isfinite(strtod(member.text.ptr, NULL))
					  ? member.text
					  : (Span){NULL, 0};
	return end;
}

static bool
parse_operation(Cycle *cycle, Body *body)
{
	Span type = {NULL, 0}, name = {NULL, 0};
	JsonValue key, value = {.type = JSON_NULL}, ignored;
	bool has_value = false, upsert;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		bool ok;

		if (json_string_equals(&key, "type"))
			ok = body_text(body, "type", false, &type);
		else if (json_string_equals(&key, "key"))
			ok = body_text(body, "key", false, &name);
		else if (json_string_equals(&key, "value"))
			ok = has_value = json_value(&body->reader, &value);
		else
			ok = json_value(&body->reader, &ignored);
		if (!ok)
			return false;
	}
	if (body->reader.error)
		return false;
	upsert = span_equals(type, SPAN_LITERAL("upsert"));
	if (!upsert && !span_equals(type, SPAN_LITERAL("delete")))
		return body_fail(body, "type", "must be upsert or delete");
	if (name.ptr == NULL)
		return body_fail(body, "key", "is required");
	if (name.len > 0 && memchr(name.ptr, '\0', name.len))
		return body_fail(body, "key", "holds the character U+0000");
	if (upsert && !has_value)
		return body_fail(body, "value", "is required");
	pgarray_add_span(&cycle->keys, name);
	pgarray_add_span(&cycle->values, upsert ? value.text : (Span){NULL, 0});
	pgarray_add_span(&cycle->window_ends, upsert ? window_end(&value) : (Span){NULL, 0});
	cycle->n_operations++;
	return true;
}

static bool
parse_push(Cycle *cycle, Body *body)
{
	PushEntry *entry = push_entries_add(&cycle->pushes);
	Span id = {NULL, 0};
	JsonValue key, ignored;

	if (entry == NULL)
		return body_out_of_memory(body);
	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		bool known = true, ok;

		if (json_string_equals(&key, "data"))
			ok = push_entry_payload(body, "data", entry);
		else if (json_string_equals(&key, "messageId"))
			ok = body_text(body, "messageId", true, &id);
		else
			ok = push_entry_member(body, entry, &key, &known);
		if (!ok || (!known && !json_value(&body->reader, &ignored)))
			return false;
	}
	if (body->reader.error || !push_entry_check(body, entry))
		return false;
	if (id.ptr && !uuid_parse(id.ptr, id.len, &entry->item.message_id))
		return body_fail(body, "messageId", "is not a UUID");
	entry->item.producer_sub = span_of(cycle->req->subject);
	return true;
}

static bool
parse_list(Cycle *cycle, Body *body, const char *name, bool (*element)(Cycle *, Body *))
{
	JsonType type;
	JsonValue null;

	if (!json_peek(&body->reader, &type))
		return false;
	if (type == JSON_NULL)
		return json_value(&body->reader, &null);
	if (!json_enter_array(&body->reader))
		return false;
	body->list = name;
	for (body->index = 0; json_next_element(&body->reader); body->index++)
	{
		if (body->index == ELEMENTS_MAX)
		{
			body->list = NULL;
			return body_too_many(body, name, ELEMENTS_MAX);
		}
		if (!element(cycle, body))
			return false;
	}
	body->list = NULL;
	return body->reader.error == NULL;
}

static bool
parse_ack(Cycle *cycle, Body *body)
{
	JsonType type;
	JsonValue key, ignored;
	bool known;

	if (!json_peek(&body->reader, &type))
		return false;
	if (type == JSON_NULL)
		return json_value(&body->reader, &ignored);
	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
		if (!ack_item_member(body, &cycle->ack, &key, &known) ||
			(!known && !json_value(&body->reader, &ignored)))
			return false;
	cycle->has_ack = true;
	return body->reader.error == NULL;
}

static bool
parse_member(Cycle *cycle, Body *body, const JsonValue *key)
{
	JsonValue value;

	if (json_string_equals(key, "query_id"))
		return body_text(body, "query_id", true, &cycle->query_text);
	if (json_string_equals(key, "partition_id"))
		return body_text(body, "partition_id", true, &cycle->partition_text);
	if (json_string_equals(key, "consumer_group"))
		return body_text(body, "consumer_group", true, &cycle->group);
	if (json_string_equals(key, "state_ops"))
		return parse_list(cycle, body, "state_ops", parse_operation);
	if (json_string_equals(key, "push_items"))
		return parse_list(cycle, body, "push_items", parse_push);
	if (json_string_equals(key, "ack"))
		return parse_ack(cycle, body);
	if (!json_value(&body->reader, &value))
		return false;
	if (json_string_equals(key, "release_lease"))
		cycle->keeps_lease = value.type == JSON_FALSE;
	return true;
}

static bool
parse_body(Cycle *cycle, Body *body)
{
	JsonValue key;
	const char *why;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
		if (!parse_member(cycle, body, &key))
			return false;
	if (!json_end(&body->reader))
		return false;
	if (!uuid_parse(cycle->query_text.ptr, cycle->query_text.len, &cycle->query))
		return body_fail(body, "query_id", "is required and must be a UUID");
	if (!uuid_parse(cycle->partition_text.ptr, cycle->partition_text.len, &cycle->partition))
		return body_fail(body, "partition_id", "is required and must be a UUID");
	if (cycle->group.len == 0)
		cycle->group = span_of(QUEUE_MODE_GROUP);
	if ((why = name_check(cycle->group)) != NULL)
		return body_fail(body, "consumer_group", why);
	return true;
}

/* An acknowledgement without its lease would not be fenced. */
static const char *
check_ack(Cycle *cycle)
{
	AckItem *ack = &cycle->ack;

	if (!cycle->has_ack)
		return NULL;
	if (transaction_id_check(ack->transaction_id) != NULL)
		return "unresolved transaction id";
	if (!uuid_parse(ack->lease_text.ptr, ack->lease_text.len, &ack->lease_id))
		return "invalid or expired lease";
	return NULL;
}

void
stream_cycle_handler(Request *req)
{
	Cycle *cycle = calloc(1, sizeof(*cycle));
	PgArray *arrays[] = {&cycle->keys, &cycle->values, &cycle->window_ends};
	const char *why;
	Body body;

	req->ctx = cycle;
	req->on_done = on_done;
	cycle->req = req;
	for (int i = 0; i < 3; i++)
		pgarray_begin(arrays[i], OID_TEXT);
	if (!body_begin(&body, req, &cycle->strings) || !parse_body(cycle, &body))
	{
		char text[160];
		int status = body_fault(&body, text, sizeof(text));

		stream_fail(req, status, text);
		return;
	}
	if ((why = check_ack(cycle)) != NULL)
	{
		stream_fail(req, 200, why);
		return;
	}
	for (int i = 0; i < 3; i++)
		pgarray_end(arrays[i]);
	push_entries_link(&cycle->pushes);
	for (size_t i = 0; i < cycle->pushes.n; i++)
	{
		PushEntry *entry = &cycle->pushes.list[i];

		if (entry->leader >= 0)
			continue;
		push_item_mint(&entry->item);
		targets_add(&cycle->targets, &req->tenant, entry->queue, entry->partition, &entry->item);
	}
	send_call(cycle);
}
