/*
 * fuzz_json.c
 *		The JSON reader on any bytes.
 *
 * Invariants: skipping a value and walking it agree; an accepted span is valid
 * UTF-8 and reads again to itself; a smaller depth limit accepts nothing more;
 * strings survive decoding and writing; another parser agrees.
 */
#include "json.h"

#include "jansson_verdict.h"
#include "require.h"
#include "utf8.h"

#include <stdint.h>

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
skip_whole(const char *text, size_t len, int max_depth, JsonReader *r, Span *span)
{
	JsonValue value;

	json_begin(r, text, len, max_depth);
	if (!json_value(r, &value) || !json_end(r))
		return false;
	*span = value.text;
	return true;
}

/* Decodes the string, writes it, and reads that back. */
static void
check_string(const JsonValue *value)
{
	Buf decoded = {0};
	Buf written = {0};
	Buf again = {0};
	JsonReader r;
	JsonValue back;

	json_string_decode(value, &decoded);
	require(!decoded.failed);
	require(utf8_valid(decoded.data, decoded.len));
	require(value->escaped || span_equals((Span){decoded.data, decoded.len},
										  (Span){value->text.ptr + 1, value->text.len - 2}));

	json_write_string(&written, decoded.data, decoded.len);
	json_begin(&r, written.data, written.len, 1);
	require(json_value(&r, &back) && json_end(&r));
	json_string_decode(&back, &again);
	require(span_equals((Span){decoded.data, decoded.len}, (Span){again.data, again.len}));

	buf_append_char(&decoded, '\0');
	require(json_string_equals(value, decoded.data) == (strlen(decoded.data) == again.len));
	buf_free(&decoded);
	buf_free(&written);
	buf_free(&again);
}

/* Reads a value by entering every container. */
static void
walk(JsonReader *r)
{
	bool object[JSON_MAX_DEPTH + 1];
	JsonType type;
	JsonValue value;
	long long n;

	do
	{
		if (r->depth > 0)
		{
			bool more = object[r->depth] ? json_next_key(r, &value) : json_next_element(r);

			if (!more)
				continue;
			if (object[r->depth])
				check_string(&value);
		}
		if (!json_peek(r, &type))
			return;
		if (type == JSON_ARRAY && json_enter_array(r))
			object[r->depth] = false;
		else if (type == JSON_OBJECT && json_enter_object(r))
			object[r->depth] = true;
		else if (json_value(r, &value))
		{
			if (type == JSON_STRING)
				check_string(&value);
			else
				json_int64(&value, &n);
		}
	} while (r->error == NULL && r->depth > 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *) data;
	JsonReader skipped;
	JsonReader walked;
	JsonReader other;
	JanssonVerdict verdict;
	Span span;
	Span again;
	bool accepted = skip_whole(text, size, JSON_MAX_DEPTH, &skipped, &span);

	json_begin(&walked, text, size, JSON_MAX_DEPTH);
	walk(&walked);
	require(json_end(&walked) == accepted);
	require(walked.error == skipped.error && walked.pos == skipped.pos);

	if (accepted)
	{
		require(utf8_valid(span.ptr, span.len));
		require(skip_whole(span.ptr, span.len, JSON_MAX_DEPTH, &other, &again));
		require(again.ptr == span.ptr && again.len == span.len);
	}
	if (skip_whole(text, size, 3, &other, &again))
		require(accepted && again.ptr == span.ptr && again.len == span.len);

	/* Jansson takes deeper nesting, and a zero byte for the end of the text. */
	verdict = jansson_verdict(text, size);
	if (accepted)
		require(verdict != JANSSON_REFUSES);
	else if (strcmp(skipped.error, "nested too deeply") != 0 && memchr(text, 0, size) == NULL)
		require(verdict != JANSSON_ACCEPTS);
	return 0;
}
