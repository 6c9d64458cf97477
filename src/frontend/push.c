/*
 * push.c
 *		POST /api/v1/push: {"items":[{queue, partition, transactionId, payload}, ...]}
 *
 * The whole request is validated before any of it is handed on.  Answer: 201
 * with one object per item, also when some failed; 400 for a bad body; 503
 * when the database could take none of them.
 */
#include "push.h"

#include "body.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>

#define ITEMS_MAX 500000

typedef struct PushRequest
{
	Request *req;
	PushEntries entries;
	size_t undecided;
	Buf strings; /* unescaped names and ids; never grows beyond the body */
} PushRequest;

static void
push_request_free(PushRequest *push)
{
	push_entries_free(&push->entries);
	buf_free(&push->strings);
	free(push);
}

static void
on_done(Request *req, bool delivered)
{
	(void) delivered;
	push_request_free(req->ctx);
}

/* --- reading the body ---------------------------------------------------- */

static bool
parse_items(Body *body, PushRequest *push)
{
	if (!json_enter_array(&body->reader))
		return false;
	while (json_next_element(&body->reader))
	{
		PushEntry *entry;
		JsonValue key, ignored;
		bool known;

		if (push->entries.n == ITEMS_MAX)
			return body_too_many(body, "items", ITEMS_MAX);
		body->list = "items";
		body->index = push->entries.n;
		entry = push_entries_add(&push->entries);
		if (entry == NULL)
			return body_out_of_memory(body);
		if (!json_enter_object(&body->reader))
			return false;
		while (json_next_key(&body->reader, &key))
			if (!push_entry_member(body, entry, &key, &known) ||
				(!known && !json_value(&body->reader, &ignored)))
				return false;
		if (body->reader.error || !push_entry_check(body, entry))
			return false;
		body->list = NULL;
	}
	return body->reader.error == NULL;
}

static bool
parse_body(Body *body, PushRequest *push)
{
	JsonValue key, ignored;
	bool seen = false;

	if (!json_enter_object(&body->reader))
		return false;
	while (json_next_key(&body->reader, &key))
	{
		if (!json_string_equals(&key, "items"))
		{
			if (!json_value(&body->reader, &ignored))
				return false;
			continue;
		}
		if (seen)
			return body_fail(body, "items", "appears twice");
		seen = true;
		if (!parse_items(body, push))
			return false;
	}
	if (!json_end(&body->reader))
		return false;
	return seen || body_fail(body, "items", "is required and must be an array");
}

/* --- the answer ---------------------------------------------------------- */

static void
repeat_leader(PushEntry *entry, const PushEntry *leader)
{
	entry->item.status = leader->item.status == PUSH_QUEUED ? PUSH_DUPLICATE : leader->item.status;
	entry->item.message_id = leader->item.message_id;
	entry->item.error = leader->item.error ? strdup(leader->item.error) : NULL;
}

static void
append_entry(Buf *out, size_t index, const PushEntry *entry)
{
	static const char *const names[] = {"", "queued", "duplicate", "failed", "buffered"};
	const PushItem *item = &entry->item;
	char id[UUID_TEXT_LEN];

	uuid_format(&item->message_id, id);
	buf_append_str(out, index ? ",{\"index\":" : "{\"index\":");
	buf_append_number(out, index);
	buf_append_str(out, ",\"message_id\":\"");
	buf_append(out, id, UUID_TEXT_LEN);
	buf_append_str(out, "\",\"transaction_id\":");
	json_write_string(out, item->transaction_id.ptr, item->transaction_id.len);
	buf_append_str(out, ",\"queueName\":");
	json_write_string(out, entry->queue.ptr, entry->queue.len);
	buf_append_str(out, ",\"status\":\"");
	buf_append_str(out, names[item->status]);
	buf_append_char(out, '"');
	if (item->error)
	{
		buf_append_str(out, ",\"error\":");
		json_write_string(out, item->error, strlen(item->error));
	}
	buf_append_char(out, '}');
}

/* 503 when no item was stored and the database was the reason. */
static const PushItem *
database_failure(const PushRequest *push)
{
	const PushItem *failed = NULL;

	for (size_t i = 0; i < push->entries.n; i++)
	{
		const PushItem *item = &push->entries.list[i].item;

		if (item->status != PUSH_FAILED)
			return NULL;
		if (item->http_status == 503)
			failed = item;
	}
	return failed;
}

static void
answer(PushRequest *push)
{
	const PushItem *failed;
	uint64_t duplicates = 0;
	Buf body = {0};

	for (size_t i = 0; i < push->entries.n; i++)
	{
		if (push->entries.list[i].leader >= 0)
			repeat_leader(&push->entries.list[i],
						  &push->entries.list[push->entries.list[i].leader]);
		duplicates += push->entries.list[i].item.status == PUSH_DUPLICATE;
	}
	metrics_add(&push->req->worker->metrics, METRIC_PUSH_DUPLICATES, duplicates);
	failed = database_failure(push);
	if (failed)
	{
		http_reply_error(push->req, 503, failed->error ? failed->error : "out of memory");
		return;
	}
	buf_append_char(&body, '[');
	for (size_t i = 0; i < push->entries.n; i++)
		append_entry(&body, i, &push->entries.list[i]);
	buf_append_char(&body, ']');
	http_reply(push->req, 201, &body);
}

void
push_item_decided(PushItem *item)
{
	PushRequest *push = item->request;

	if (--push->undecided == 0)
		answer(push);
}

void
push_handler(Request *req)
{
	PushRequest *push = calloc(1, sizeof(*push));
	Body body;

	req->ctx = push;
	req->on_done = on_done;
	push->req = req;
	metrics_add(&req->worker->metrics, METRIC_PUSH_REQUESTS, 1);
	if (!body_begin(&body, req, &push->strings) || !parse_body(&body, push))
	{
		body_refuse(&body, req);
		return;
	}
	http_hold(req, push->entries.cap * sizeof(*push->entries.list));
	push_entries_link(&push->entries);

	/* Counted first: one more, so that the answer waits for the end of this loop. */
	push->undecided = 1;
	for (size_t i = 0; i < push->entries.n; i++)
		push->undecided += push->entries.list[i].leader < 0;
	for (size_t i = 0; i < push->entries.n; i++)
	{
		PushEntry *entry = &push->entries.list[i];

		entry->item.request = push;
		entry->item.producer_sub = span_of(req->subject);
		if (entry->leader < 0)
			fusion_add(req->worker->fusion, &req->tenant, entry->queue, entry->partition,
					   &entry->item);
	}
	if (--push->undecided == 0)
		answer(push);
}
