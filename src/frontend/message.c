/*
 * message.c
 *		One pushed message, from the body of a request to a frame.
 */
#include "message.h"

#include "crypt.h"
#include "hash.h"
#include "hashindex.h"
#include "names.h"
#include "protocol.h"

#include <assert.h>
#include <stdlib.h>

PushEntry *
push_entries_add(PushEntries *entries)
{
	PushEntry *entry;

	if (entries->n == entries->cap)
	{
		size_t cap = entries->cap ? 2 * entries->cap : 4;
		PushEntry *list = realloc(entries->list, cap * sizeof(*list));

		if (list == NULL)
			return NULL;
		entries->list = list;
		entries->cap = cap;
	}
	entry = &entries->list[entries->n++];
	memset(entry, 0, sizeof(*entry));
	entry->leader = -1;
	return entry;
}

void
push_entries_free(PushEntries *entries)
{
	for (size_t i = 0; i < entries->n; i++)
	{
		free(entries->list[i].item.error);
		free(entries->list[i].item.envelope);
	}
	free(entries->list);
}

/* --- reading --------------------------------------------------------------- */

bool
push_entry_payload(Body *body, const char *member, PushEntry *entry)
{
	JsonReader reader;
	JsonValue value;

	if (entry->item.payload.ptr)
		return body_fail(body, member, "appears twice");
	json_begin(&reader, body->reader.pos, (size_t) (body->reader.end - body->reader.pos),
			   JSON_MAX_DEPTH);
	if (!json_value(&reader, &value))
		body->reader.error = reader.error;
	else
		entry->item.payload = value.text;
	body->reader.pos = reader.pos;
	return body->reader.error == NULL;
}

bool
push_entry_member(Body *body, PushEntry *entry, const JsonValue *key, bool *known)
{
	*known = true;
	if (json_string_equals(key, "payload"))
		return push_entry_payload(body, "payload", entry);
	if (json_string_equals(key, "queue"))
		return body_text(body, "queue", false, &entry->queue);
	if (json_string_equals(key, "partition"))
		return body_text(body, "partition", false, &entry->partition);
	/* SDKs send null when there is none. */
	if (json_string_equals(key, "transactionId"))
		return body_text(body, "transactionId", true, &entry->item.transaction_id);
	*known = false;
	return true;
}

bool
push_entry_check(Body *body, PushEntry *entry)
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

void
push_entries_link(PushEntries *entries)
{
	HashIndex index;
	void *memory;
	Buf identity = {0};

	if (entries->n < 2)
		return;
	memory = calloc(1, hash_index_size(entries->n));
	if (memory == NULL)
		abort();
	hash_index_init(&index, entries->n, memory);
	for (size_t i = 0; i < entries->n; i++)
	{
		PushEntry *entry = &entries->list[i];

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

/* --- writing --------------------------------------------------------------- */

void
push_item_mint(PushItem *item)
{
	static const Uuid none;

	if (memcmp(&item->message_id, &none, sizeof(none)) == 0)
		uuid_v7(&item->message_id);
	if (item->transaction_id.ptr == NULL)
	{
		uuid_format(&item->message_id, item->id_text);
		item->transaction_id = (Span){item->id_text, UUID_TEXT_LEN};
	}
	transaction_hash(item->transaction_id.ptr, item->transaction_id.len, item->hash);
}

bool
push_item_seal(PushItem *item, struct Crypt *crypt)
{
	Buf envelope = {0};

	if (item->envelope == NULL && crypt_seal(crypt, item->payload, &envelope))
	{
		item->envelope = envelope.data;
		item->envelope_len = envelope.len;
	}
	else
		buf_free(&envelope);
	return item->envelope != NULL;
}

Frame
push_item_frame(const PushItem *item)
{
	assert(item != NULL);
	return (Frame){.flags = item->envelope ? FRAME_ENCRYPTED : 0,
				   .message_id = item->message_id.bytes,
				   .trace_id = item->has_trace ? item->trace_id.bytes : NULL,
				   .transaction_id = item->transaction_id,
				   .producer_sub = item->producer_sub,
				   .payload =
					   item->envelope ? (Span){item->envelope, item->envelope_len} : item->payload};
}
