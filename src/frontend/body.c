/*
 * body.c
 *		What the readers of a JSON request body share.
 */
#include "body.h"

#include <stdio.h>

#define ENVELOPE_DEPTH 64

bool
body_begin(Body *body, const Request *req, Buf *strings)
{
	memset(body, 0, sizeof(*body));
	body->strings = strings;
	json_begin(&body->reader, req->body.data, req->body.len, ENVELOPE_DEPTH);
	return buf_reserve(strings, req->body.len + 1) || body_out_of_memory(body);
}

bool
body_fail(Body *body, const char *member, const char *what)
{
	body->status = 400;
	if (body->list)
		snprintf(body->error, sizeof(body->error), "%s[%zu].%s %s", body->list, body->index, member,
				 what);
	else
		snprintf(body->error, sizeof(body->error), "%s %s", member, what);
	return false;
}

bool
body_too_many(Body *body, const char *member, int max)
{
	char what[64];

	snprintf(what, sizeof(what), "has more than %d elements", max);
	return body_fail(body, member, what);
}

bool
body_out_of_memory(Body *body)
{
	body->status = 503;
	snprintf(body->error, sizeof(body->error), "out of memory");
	return false;
}

bool
body_text(Body *body, const char *member, bool nullable, Span *out)
{
	size_t start = body->strings->len;
	JsonValue value;

	if (out->ptr)
		return body_fail(body, member, "appears twice");
	if (!json_value(&body->reader, &value))
		return false;
	if (value.type == JSON_NULL && nullable)
		return true;
	if (value.type != JSON_STRING)
		return body_fail(body, member, "must be a string");
	*out = (Span){value.text.ptr + 1, value.text.len - 2};
	if (value.escaped)
	{
		json_string_decode(&value, body->strings);
		*out = (Span){body->strings->data + start, body->strings->len - start};
	}
	return true;
}

bool
body_bool(Body *body, const char *member, bool *out)
{
	JsonValue value;

	if (!json_value(&body->reader, &value))
		return false;
	if (value.type != JSON_TRUE && value.type != JSON_FALSE && value.type != JSON_NULL)
		return body_fail(body, member, "must be true or false");
	*out = value.type == JSON_TRUE;
	return true;
}

int
body_fault(const Body *body, char *text, size_t size)
{
	const JsonReader *reader = &body->reader;

	if (body->status != 0)
	{
		snprintf(text, size, "%s", body->error);
		return body->status;
	}
	snprintf(text, size, "bad body: %s at byte %zu", reader->error,
			 (size_t) (reader->pos - reader->start));
	return 400;
}

void
body_refuse(const Body *body, Request *req)
{
	char error[160];
	int status = body_fault(body, error, sizeof(error));

	http_reply_error(req, status, error);
}
