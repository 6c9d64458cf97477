/*
 * json.c
 *		A JSON reader that yields spans of the text it reads.
 *
 * There is one reader of each construct: json_value() skips a container with
 * the same calls that a caller would use to walk it.
 */
#include "json.h"

#include "hex.h"
#include "utf8.h"

#include <endian.h>
#include <limits.h>
#include <stdint.h>

#define REPEAT(byte) (UINT64_C(0x0101010101010101) * (byte))

static const char unexpected_character[] = "unexpected character";
static const char unexpected_end[] = "unexpected end";

static bool
fail(JsonReader *r, const char *error)
{
	r->error = error;
	return false;
}

static inline void
skip_space(JsonReader *r)
{
	while (r->pos < r->end &&
		   (*r->pos == ' ' || *r->pos == '\n' || *r->pos == '\r' || *r->pos == '\t'))
		r->pos++;
}

/* ASCII that stands for itself in a string */
static inline bool
is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/*
 * Sets the top bit of the lowest byte of "word" that is below "limit" (at most
 * 128); what it says of the bytes above that one is not reliable.
 */
static inline uint64_t
lowest_below(uint64_t word, unsigned limit)
{
	return (word - REPEAT(limit)) & ~word & REPEAT(0x80);
}

/* The top bit of the lowest byte that is not plain, 0 when all are; bytes above it as before. */
static inline uint64_t
lowest_special(uint64_t word)
{
	return (word & REPEAT(0x80)) | lowest_below(word, 0x20) | lowest_below(word ^ REPEAT('"'), 1) |
		   lowest_below(word ^ REPEAT('\\'), 1);
}

/* First byte that is not plain, or "end". */
static inline const char *
skip_plain(const char *p, const char *end)
{
	/* By whole words: strings are most of the bytes. */
	while ((size_t) (end - p) >= sizeof(uint64_t))
	{
		uint64_t word, special;

		memcpy(&word, p, sizeof(word));
		special = lowest_special(le64toh(word));
		if (special)
			return p + __builtin_ctzll(special) / 8;
		p += sizeof(word);
	}
	while (p < end && is_plain((unsigned char) *p))
		p++;
	return p;
}

/* The code unit of the \uXXXX at "p", -1 when there is none. */
static int
unicode_escape(const char *p, const char *end)
{
	int unit = 0;

	if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
		return -1;
	for (int i = 2; i < 6; i++)
	{
		int digit = hex_digit(p[i]);

		if (digit < 0)
			return -1;
		unit = unit << 4 | digit;
	}
	return unit;
}

/*
 * Reads the escape at "p", a surrogate pair as one.  Returns its length and
 * sets *code to the character it stands for, or returns 0 and sets *error.
 */
static size_t
read_escape(const char *p, const char *end, uint32_t *code, const char **error)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	int unit;
	int low;

	if (end - p < 2)
	{
		*error = "unterminated string";
		return 0;
	}
	if (p[1] != 'u')
	{
		const char *letter = memchr(letters, p[1], sizeof(letters) - 1);

		if (letter == NULL)
		{
			*error = "unknown escape";
			return 0;
		}
		*code = (unsigned char) meanings[letter - letters];
		return 2;
	}

	unit = unicode_escape(p, end);
	if (unit < 0)
	{
		*error = "malformed escape";
		return 0;
	}
	if (unit < 0xD800 || unit > 0xDFFF)
	{
		*code = (uint32_t) unit;
		return 6;
	}
	low = unicode_escape(p + 6, end);
	if (unit > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
	{
		*error = "lone surrogate";
		return 0;
	}
	*code = 0x10000 + ((uint32_t) (unit - 0xD800) << 10) + (uint32_t) (low - 0xDC00);
	return 12;
}

static size_t
utf8_encode(uint32_t code, char out[4])
{
	if (code < 0x80)
	{
		out[0] = (char) code;
		return 1;
	}
	if (code < 0x800)
	{
		out[0] = (char) (0xC0 | code >> 6);
		out[1] = (char) (0x80 | (code & 0x3F));
		return 2;
	}
	if (code < 0x10000)
	{
		out[0] = (char) (0xE0 | code >> 12);
		out[1] = (char) (0x80 | (code >> 6 & 0x3F));
		out[2] = (char) (0x80 | (code & 0x3F));
		return 3;
	}
	out[0] = (char) (0xF0 | code >> 18);
	out[1] = (char) (0x80 | (code >> 12 & 0x3F));
	out[2] = (char) (0x80 | (code >> 6 & 0x3F));
	out[3] = (char) (0x80 | (code & 0x3F));
	return 4;
}

static bool
read_string(JsonReader *r, JsonValue *value)
{
	const char *start = r->pos++;

	value->type = JSON_STRING;
	value->escaped = false;
	for (;;)
	{
		uint32_t code;
		size_t len;

		r->pos = skip_plain(r->pos, r->end);
		if (r->pos == r->end)
			return fail(r, "unterminated string");
		if (*r->pos == '"')
			break;
		if (*r->pos == '\\')
		{
			len = read_escape(r->pos, r->end, &code, &r->error);
			if (len == 0)
				return false;
			value->escaped = true;
		}
		else
		{
			if ((unsigned char) *r->pos < 0x20)
				return fail(r, "control character in a string");
			len = utf8_sequence(r->pos, (size_t) (r->end - r->pos));
			if (len == 0)
				return fail(r, "invalid UTF-8");
		}
		r->pos += len;
	}
	r->pos++;
	value->text = (Span){start, (size_t) (r->pos - start)};
	return true;
}

static bool
read_literal(JsonReader *r, const char *word, size_t len)
{
	if ((size_t) (r->end - r->pos) < len || memcmp(r->pos, word, len) != 0)
		return fail(r, "unknown literal");
	r->pos += len;
	return true;
}

static inline bool
at_char(const JsonReader *r, char c)
{
	return r->pos < r->end && *r->pos == c;
}

/* At least one digit. */
static bool
read_digits(JsonReader *r)
{
	const char *start = r->pos;

	while (r->pos < r->end && *r->pos >= '0' && *r->pos <= '9')
		r->pos++;
	return r->pos > start || fail(r, "malformed number");
}

static bool
read_number(JsonReader *r)
{
	if (at_char(r, '-'))
		r->pos++;
	if (at_char(r, '0'))
		r->pos++; /* a digit after it is no part of the number */
	else if (!read_digits(r))
		return false;
	if (at_char(r, '.'))
	{
		r->pos++;
		if (!read_digits(r))
			return false;
	}
	if (at_char(r, 'e') || at_char(r, 'E'))
	{
		r->pos++;
		if (at_char(r, '+') || at_char(r, '-'))
			r->pos++;
		if (!read_digits(r))
			return false;
	}
	return true;
}

/* A value without values in it, of the type that json_peek() found. */
static bool
read_scalar(JsonReader *r, JsonValue *value)
{
	switch (value->type)
	{
		case JSON_NULL:
			return read_literal(r, "null", 4);
		case JSON_TRUE:
			return read_literal(r, "true", 4);
		case JSON_FALSE:
			return read_literal(r, "false", 5);
		case JSON_STRING:
			return read_string(r, value);
		default:
			return read_number(r);
	}
}

static bool
enter(JsonReader *r)
{
	if (r->depth == r->max_depth)
		return fail(r, "nested too deeply");
	r->pos++;
	r->depth++;
	r->first = true;
	return true;
}

/* What both kinds of containers share: commas, and the end. */
static inline bool
next_item(JsonReader *r, char close)
{
	if (r->error != NULL)
		return false;
	skip_space(r);
	if (r->pos == r->end)
		return fail(r, unexpected_end);
	if (*r->pos == close)
	{
		r->pos++;
		r->depth--;
		r->first = false;
		return false;
	}
	if (!r->first)
	{
		if (*r->pos != ',')
			return fail(r, unexpected_character);
		r->pos++;
	}
	r->first = false;
	return true;
}

static inline bool
is_container(JsonType type)
{
	return type == JSON_OBJECT || type == JSON_ARRAY;
}

/* Reads a container to its end, with everything in it. */
static bool
read_container(JsonReader *r, JsonType type)
{
	JsonType kinds[JSON_MAX_DEPTH + 1]; /* of the container entered at each depth */
	int outside = r->depth;

	if (!enter(r))
		return false;
	kinds[r->depth] = type;
	while (r->depth > outside)
	{
		JsonValue item;
		bool more;

		if (kinds[r->depth] == JSON_OBJECT)
			more = json_next_key(r, &item);
		else
			more = json_next_element(r);
		if (r->error != NULL)
			return false;
		if (!more)
			continue;

		if (!json_peek(r, &item.type))
			return false;
		if (is_container(item.type))
		{
			if (!enter(r))
				return false;
			kinds[r->depth] = item.type;
		}
		else if (!read_scalar(r, &item))
			return false;
	}
	return true;
}

void
json_begin(JsonReader *r, const char *text, size_t len, int max_depth)
{
	*r = (JsonReader){
		.start = text,
		.pos = text,
		.end = len > 0 ? text + len : text, /* an empty text may be NULL */
		.max_depth = max_depth < JSON_MAX_DEPTH ? max_depth : JSON_MAX_DEPTH,
		.first = true,
	};
}

bool
json_end(JsonReader *r)
{
	if (r->error != NULL)
		return false;
	skip_space(r);
	if (r->depth > 0 || r->first)
		return fail(r, r->pos == r->end ? unexpected_end : "the value was not read to its end");
	if (r->pos < r->end)
		return fail(r, "text after the value");
	return true;
}

bool
json_peek(JsonReader *r, JsonType *type)
{
	if (r->error != NULL)
		return false;
	skip_space(r);
	if (r->pos == r->end)
		return fail(r, unexpected_end);
	if (r->depth == 0 && !r->first)
		return fail(r, "text after the value");

	switch (*r->pos)
	{
		case 'n':
			*type = JSON_NULL;
			return true;
		case 't':
			*type = JSON_TRUE;
			return true;
		case 'f':
			*type = JSON_FALSE;
			return true;
		case '"':
			*type = JSON_STRING;
			return true;
		case '[':
			*type = JSON_ARRAY;
			return true;
		case '{':
			*type = JSON_OBJECT;
			return true;
		default:
			if (*r->pos != '-' && (*r->pos < '0' || *r->pos > '9'))
				return fail(r, unexpected_character);
			*type = JSON_NUMBER;
			return true;
	}
}

bool
json_enter_object(JsonReader *r)
{
	JsonType type;

	if (!json_peek(r, &type))
		return false;
	if (type != JSON_OBJECT)
		return fail(r, "an object was expected");
	return enter(r);
}

bool
json_enter_array(JsonReader *r)
{
	JsonType type;

	if (!json_peek(r, &type))
		return false;
	if (type != JSON_ARRAY)
		return fail(r, "an array was expected");
	return enter(r);
}

bool
json_next_key(JsonReader *r, JsonValue *key)
{
	if (!next_item(r, '}'))
		return false;
	skip_space(r);
	if (!at_char(r, '"'))
		return fail(r, r->pos == r->end ? unexpected_end : unexpected_character);
	if (!read_string(r, key))
		return false;
	skip_space(r);
	if (!at_char(r, ':'))
		return fail(r, r->pos == r->end ? unexpected_end : unexpected_character);
	r->pos++;
	return true;
}

bool
json_next_element(JsonReader *r)
{
	return next_item(r, ']');
}

bool
json_value(JsonReader *r, JsonValue *value)
{
	const char *start;
	bool ok;

	if (!json_peek(r, &value->type))
		return false;
	start = r->pos;
	value->escaped = false;
	if (is_container(value->type))
		ok = read_container(r, value->type);
	else
		ok = read_scalar(r, value);
	if (!ok)
		return false;
	r->first = false;
	value->text = (Span){start, (size_t) (r->pos - start)};
	return true;
}

/*
 * Next piece of a string that was read: a run without escapes, which is left
 * where it is, or one escaped character, decoded into "buf".
 */
static Span
next_piece(const char **pos, const char *end, char buf[4])
{
	const char *start = *pos;
	const char *escape;
	const char *error;
	uint32_t code = 0;

	if (*start == '\\')
	{
		*pos += read_escape(start, end, &code, &error);
		return (Span){buf, utf8_encode(code, buf)};
	}
	escape = memchr(start, '\\', (size_t) (end - start));
	*pos = escape != NULL ? escape : end;
	return (Span){start, (size_t) (*pos - start)};
}

bool
json_string_equals(const JsonValue *value, const char *text)
{
	const char *pos = value->text.ptr + 1;
	const char *end = value->text.ptr + value->text.len - 1;
	size_t left = strlen(text);

	if (!value->escaped)
		return (size_t) (end - pos) == left && memcmp(pos, text, left) == 0;
	while (pos < end)
	{
		char buf[4];
		Span piece = next_piece(&pos, end, buf);

		if (piece.len > left || memcmp(piece.ptr, text, piece.len) != 0)
			return false;
		text += piece.len;
		left -= piece.len;
	}
	return left == 0;
}

void
json_string_decode(const JsonValue *value, Buf *out)
{
	const char *pos = value->text.ptr + 1;
	const char *end = value->text.ptr + value->text.len - 1;

	while (pos < end)
	{
		char buf[4];
		Span piece = next_piece(&pos, end, buf);

		buf_append(out, piece.ptr, piece.len);
	}
}

/* Writes a byte that cannot stand for itself. */
static void
write_special(Buf *out, unsigned char c)
{
	switch (c)
	{
		case '"':
			buf_append_str(out, "\\\"");
			break;
		case '\\':
			buf_append_str(out, "\\\\");
			break;
		case '\n':
			buf_append_str(out, "\\n");
			break;
		case '\r':
			buf_append_str(out, "\\r");
			break;
		case '\t':
			buf_append_str(out, "\\t");
			break;
		default:
			if (c < 0x20)
				buf_printf(out, "\\u%04x", c);
			else
				buf_append_str(out, "\xEF\xBF\xBD");
			break;
	}
}

void
json_write_string(Buf *out, const char *text, size_t len)
{
	buf_append_char(out, '"');
	while (len > 0)
	{
		size_t n = (size_t) (skip_plain(text, text + len) - text);

		if (n == 0 && (unsigned char) *text >= 0x80)
			n = utf8_sequence(text, len);
		if (n > 0)
			buf_append(out, text, n);
		else
		{
			write_special(out, (unsigned char) *text);
			n = 1;
		}
		text += n;
		len -= n;
	}
	buf_append_char(out, '"');
}

void
json_write_text(Buf *out, Span text)
{
	if (text.ptr)
		json_write_string(out, text.ptr, text.len);
	else
		buf_append_str(out, "null");
}

bool
json_int64(const JsonValue *value, long long *out)
{
	const char *p = value->text.ptr;
	const char *end = p + value->text.len;
	bool negative;
	long long n = 0;

	if (value->type != JSON_NUMBER)
		return false;
	negative = *p == '-';
	if (negative)
		p++;

	/* Summed up below zero, where the range is larger by one. */
	for (; p < end; p++)
	{
		if (*p < '0' || *p > '9')
			return false;
		if (n < (LLONG_MIN + (*p - '0')) / 10)
			return false;
		n = n * 10 - (*p - '0');
	}
	if (!negative && n == LLONG_MIN)
		return false;
	*out = negative ? n : -n;
	return true;
}
