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
#include "hash.h"
#include "hashindex.h"
#include "names.h"
#include "protocol.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>

#define ITEMS_MAX 500000

typedef struct PushEntry
{
	PushItem item;
	Span queue, partition;
	int64_t leader;		  /* entry of the same request with the same id, -1: none */
	uint8_t identity[16]; /* hash of queue, partition and transaction id */
} PushEntry;

typedef struct PushRequest
{
	Request *req;
	PushEntry *entries;
	size_t n, cap;
	size_t undecided;
	Buf strings; /* unescaped names and ids; never grows beyond the body */
} PushRequest;

static void
push_request_free(PushRequest *push)
{
	for (size_t i = 0; i < push->n; i++)
	{
		free(push->entries[i].item.error);
		free(push->entries[i].item.envelope);
	}
	free(push->entries);
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

/* The payload has a depth limit of its own, so it gets a reader of its own. */
static bool
parse_payload(Body *body, Span *out)
{
	JsonReader reader;
	JsonValue value;

	if (out->ptr)
		return body_fail(body, "payload", "appears twice");
	json_begin(&reader, body->reader.pos, (size_t) (body->reader.end - body->reader.pos),
			   JSON_MAX_DEPTH);
	if (!json_value(&reader, &value))
		body->reader.error = reader.error;
	else
		*out = value.text;
	body->reader.pos = reader.pos;
	return body->reader.error == NULL;
}

static bool
parse_member(Body *body, PushEntry *entry, const JsonValue *key)
{
	JsonValue ignored;

	if (json_string_equals(key, "payload"))
		return parse_payload(body, &entry->item.payload);
	if (json_string_equals(key, "queue"))
		return body_text(body, "queue", false, &entry->queue);
	if (json_string_equals(key, "partition"))
		return body_text(body, "partition", false, &entry->partition);
	/* SDKs send null when there is none. */
	if (json_string_equals(key, "transactionId"))
		return body_text(body, "transactionId", true, &entry->item.transaction_id);
	return json_value(&body->reader, &ignored);
}

static bool
check_entry(Body *body, PushEntry *entry)
{
	const char *why;

	if (entry->queue.ptr == NULL)
		return body_fail(body, "queue", "is required");
	if (entry->item.payload.ptr == NULL)
		return body_fail(body, "payload", "is required");
	if (entry->partition.ptr == NULL)
		entry->partition = span_of(DEFAULT_PARTITION);
	if ((why = queue_name_check(entry->queue)) != NULL)
		return body_fail(body, "queue", why);
	if ((why = name_check(entry->partition)) != NULL)
		return body_fail(body, "partition", why);
	if (entry->item.transaction_id.ptr &&
		(why = transaction_id_check(entry->item.transaction_id)) != NULL)
		return body_fail(body, "transactionId", why);
	return true;
}

static PushEntry *
new_entry(PushRequest *push)
{
	PushEntry *entry;

	if (push->n == push->cap)
	{
		size_t cap = push->cap ? 2 * push->cap : 4;
		PushEntry *entries = realloc(push->entries, cap * sizeof(*entries));

		if (entries == NULL)
			return NULL;
		push->entries = entries;
		push->cap = cap;
	}
	entry = &push->entries[push->n++];
	memset(entry, 0, sizeof(*entry));
	entry->leader = -1;
	return entry;
}

static bool
parse_items(Body *body, PushRequest *push)
{
	if (!json_enter_array(&body->reader))
		return false;
	while (json_next_element(&body->reader))
	{
		PushEntry *entry;
		JsonValue key;

		if (push->n == ITEMS_MAX)
			return body_too_many(body, "items", ITEMS_MAX);
		body->list = "items";
		body->index = push->n;
		entry = new_entry(push);
		if (entry == NULL)
			return body_out_of_memory(body);
		if (!json_enter_object(&body->reader))
			return false;
		while (json_next_key(&body->reader, &key))
			if (!parse_member(body, entry, &key))
				return false;
		if (body->reader.error || !check_entry(body, entry))
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

/* --- duplicates inside the request --------------------------------------- */

/*
 * Items of one partition with the same explicit id: the first leads.  This
 * works whatever the window, and also where a cap cuts the segment between.
 */
static void
link_duplicates(PushRequest *push)
{
	HashIndex index;
	void *memory;
	Buf identity = {0};

	if (push->n < 2)
		return;
	memory = calloc(1, hash_index_size(push->n));
	if (memory == NULL)
		abort();
	hash_index_init(&index, push->n, memory);
	for (size_t i = 0; i < push->n; i++)
	{
		PushEntry *entry = &push->entries[i];

		if (entry->item.transaction_id.ptr == NULL)
			continue;
		buf_reset(&identity);
		buf_append(&identity, entry->queue.ptr, entry->queue.len);
		buf_append_char(&identity, '\x1f');
		buf_append(&identity, entry->partition.ptr, entry->partition.len);
		buf_append_char(&identity, '\x1f');
		buf_append(&identity, entry->item.transaction_id.ptr, entry->item.transaction_id.len);
		transaction_hash(identity.data, identity.len, entry->identity);
		entry->leader = hash_index_add(&index, entry->identity, (uint32_t) i);
	}
	free(memory);
	buf_free(&identity);
}

/* --- the answer ---------------------------------------------------------- */

static void
follow_leader(PushEntry *entry, const PushEntry *leader)
{
	entry->item.status = leader->item.status == PUSH_QUEUED ? PUSH_DUPLICATE : leader->item.status;
	entry->item.message_id = leader->item.message_id;
	entry->item.error = leader->item.error ? strdup(leader->item.error) : NULL;
}

static void
append_entry(Buf *out, size_t index, const PushEntry *entry)
{
	static const char *const names[] = {"", "queued", "duplicate", "failed"};
	const PushItem *item = &entry->item;
	char id[UUID_TEXT_LEN];

	uuid_format(&item->message_id, id);
	buf_printf(out,
			   "%s{\"index\":%zu,\"message_id\":\"%.*s\",\"transaction_id\":", index ? "," : "",
			   index, UUID_TEXT_LEN, id);
	json_write_string(out, item->transaction_id.ptr, item->transaction_id.len);
	buf_append_str(out, ",\"queueName\":");
	json_write_string(out, entry->queue.ptr, entry->queue.len);
	buf_printf(out, ",\"status\":\"%s\"", names[item->status]);
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

	for (size_t i = 0; i < push->n; i++)
	{
		const PushItem *item = &push->entries[i].item;

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

	for (size_t i = 0; i < push->n; i++)
	{
		if (push->entries[i].leader >= 0)
			follow_leader(&push->entries[i], &push->entries[push->entries[i].leader]);
		duplicates += push->entries[i].item.status == PUSH_DUPLICATE;
	}
	metrics_add(&push->req->worker->metrics, METRIC_PUSH_DUPLICATES, duplicates);
	failed = database_failure(push);
	if (failed)
	{
		http_reply_error(push->req, 503, failed->error);
		return;
	}
	buf_append_char(&body, '[');
	for (size_t i = 0; i < push->n; i++)
		append_entry(&body, i, &push->entries[i]);
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
	link_duplicates(push);

	/* Counted first: one more, so that the answer waits for the end of this loop. */
	push->undecided = 1;
	for (size_t i = 0; i < push->n; i++)
		push->undecided += push->entries[i].leader < 0;
	for (size_t i = 0; i < push->n; i++)
	{
		PushEntry *entry = &push->entries[i];

		entry->item.request = push;
		entry->item.producer_sub = span_of(req->subject);
		if (entry->leader < 0)
			fusion_add(req->worker->fusion, &req->tenant, entry->queue, entry->partition,
					   &entry->item);
	}
	if (--push->undecided == 0)
		answer(push);
}
