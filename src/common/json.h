/*
 * json.h
 *		A JSON reader that yields spans of the text it reads.
 *
 * Payloads must come back byte for byte, so nothing is converted: a value is
 * the span of its text.  The reader refuses what RFC 8259 refuses, and also
 * invalid UTF-8, lone surrogates in escapes, and nesting beyond its limit.
 * It is iterative and allocates nothing.
 *
 * Reading an object:
 *
 *	json_begin(&r, text, len, depth);
 *	if (json_enter_object(&r))
 *		while (json_next_key(&r, &key))		-- raw key, between the quotes
 *			json_value(&r, &value);		-- or json_enter_*()
 *	if (!json_end(&r)) ... r.error, r.pos - r.start
 *
 * After an error every call returns false, so a caller may check once.
 */
#ifndef QUEEN_JSON_H
#define QUEEN_JSON_H

#include "buf.h"
#include "span.h"

typedef enum JsonType
{
	JSON_NULL,
	JSON_TRUE,
	JSON_FALSE,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT
} JsonType;

#define JSON_MAX_DEPTH 512

typedef struct JsonReader
{
	const char *start;
	const char *pos;
	const char *end;
	const char *error; /* NULL, or what is wrong at pos */
	int depth;		   /* containers entered */
	int max_depth;
	bool first; /* no element of the current container was read yet */
} JsonReader;

typedef struct JsonValue
{
	JsonType type;
	Span text;	  /* the whole value; a string includes its quotes */
	bool escaped; /* a string that holds at least one escape */
} JsonValue;

/* max_depth counts nested containers, the outermost as 1; at most JSON_MAX_DEPTH. */
extern void json_begin(JsonReader *r, const char *text, size_t len, int max_depth);

/* True when the text was one value, all of it was read, and no error was met. */
extern bool json_end(JsonReader *r);

/* Type of the next value, without reading it.  False at an error. */
extern bool json_peek(JsonReader *r, JsonType *type);

/* Enter the next value; an error when it is not of that kind. */
extern bool json_enter_object(JsonReader *r);
extern bool json_enter_array(JsonReader *r);

/*
 * Next member of the current object: the key as a string value, the reader
 * left before its value.  False, and the object left, at its end.
 */
extern bool json_next_key(JsonReader *r, JsonValue *key);

/* True when the current array has another element; false, and the array left, at its end. */
extern bool json_next_element(JsonReader *r);

/* Reads the next value whole, whatever it is, validating all of it. */
extern bool json_value(JsonReader *r, JsonValue *value);

/* Whether a string value equals "text" after unescaping. */
extern bool json_string_equals(const JsonValue *value, const char *text);

/* Appends the unescaped contents of a string value. */
extern void json_string_decode(const JsonValue *value, Buf *out);

/* Appends "text" (valid UTF-8 or not: bad bytes become U+FFFD) as a JSON string with quotes. */
extern void json_write_string(Buf *out, const char *text, size_t len);

/* The same, or null where ptr is NULL. */
extern void json_write_text(Buf *out, Span text);

/* An integer without fraction and exponent that fits; false otherwise. */
extern bool json_int64(const JsonValue *value, long long *out);

#endif
