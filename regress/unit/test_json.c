/*
 * test_json.c
 *		The JSON reader: spans, verdicts, error texts, depth, strings, integers.
 */
#include "unit.h"

#include "json.h"

#include <limits.h>

/* Reads "text" as one whole value.  Returns what is wrong, or NULL. */
static const char *
read_whole(const char *text, size_t len, int max_depth, size_t *error_at)
{
	char *copy = exact_copy(text, len);
	JsonReader r;
	JsonValue value;

	json_begin(&r, copy, len, max_depth);
	if (json_value(&r, &value) && json_end(&r))
		assert_null(r.error);
	else
		assert_non_null(r.error);
	if (error_at != NULL)
		*error_at = (size_t) (r.pos - r.start);
	free(copy);
	return r.error;
}

static void
assert_accepted(const char *text)
{
	assert_null(read_whole(text, strlen(text), JSON_MAX_DEPTH, NULL));
}

static void
assert_refused(const char *text, const char *error, size_t at)
{
	size_t error_at;
	const char *found = read_whole(text, strlen(text), JSON_MAX_DEPTH, &error_at);

	assert_non_null(found);
	assert_string_equal(found, error);
	assert_int_equal(error_at, at);
}

/* The string value that "text" spells. */
static JsonValue
string_value(const char *text)
{
	JsonReader r;
	JsonValue value;

	json_begin(&r, text, strlen(text), 1);
	assert_true(json_value(&r, &value));
	assert_true(json_end(&r));
	assert_int_equal(value.type, JSON_STRING);
	return value;
}

static void
test_value_is_the_span_of_its_text(void **state)
{
	static const struct
	{
		const char *text;
		JsonType type;
	} values[] = {
		{"null", JSON_NULL},
		{"true", JSON_TRUE},
		{"false", JSON_FALSE},
		{"0", JSON_NUMBER},
		{"-0", JSON_NUMBER},
		{"1.0", JSON_NUMBER},
		{"1.10", JSON_NUMBER},
		{"1e400", JSON_NUMBER},
		{"1E+05", JSON_NUMBER},
		{"-0.0e-0", JSON_NUMBER},
		{"9007199254740993", JSON_NUMBER},
		{"12345678901234567890", JSON_NUMBER},
		{"0.1000000000000000055", JSON_NUMBER},
		{"\"\"", JSON_STRING},
		{"\"\\u00e9\\/\\u0000\"", JSON_STRING},
		{"\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x91\x91 \x7F\"", JSON_STRING},
		{"[]", JSON_ARRAY},
		{"[ 1 ,\t[ ] , { } ]", JSON_ARRAY},
		{"{}", JSON_OBJECT},
		{"{\"b\":1, \"a\" : 2,\r\n\"b\":3,\"\":4}", JSON_OBJECT},
	};

	for (size_t i = 0; i < lengthof(values); i++)
	{
		char text[128];
		JsonReader r;
		JsonValue value;

		/* White space around a value is no part of it. */
		snprintf(text, sizeof(text), " \t\r\n%s\n\r\t ", values[i].text);
		json_begin(&r, text, strlen(text), JSON_MAX_DEPTH);
		assert_true(json_value(&r, &value));
		assert_int_equal(value.type, values[i].type);
		assert_true(span_equals(value.text, span_of(values[i].text)));
		assert_ptr_equal(value.text.ptr, text + 4);
		assert_true(json_end(&r));
	}
}

static void
test_member_values_are_spans(void **state)
{
	static const char text[] = "{\"items\" : [ {\"payload\" : 1e400 ,\"q\":\"x\"},"
							   "{\"q\":\"y\",\"payload\":{\"b\":1.0, \"a\":[-0 ]} } ] }";
	static const char *const payloads[] = {"1e400", "{\"b\":1.0, \"a\":[-0 ]}"};
	static const char *const queues[] = {"\"x\"", "\"y\""};
	char *copy = exact_copy(text, sizeof(text) - 1);
	JsonReader r;
	JsonValue key;
	JsonValue value;
	int items = 0;
	int members = 0;

	json_begin(&r, copy, sizeof(text) - 1, 5);
	assert_true(json_enter_object(&r));
	assert_true(json_next_key(&r, &key));
	assert_true(json_string_equals(&key, "items"));
	assert_true(json_enter_array(&r));
	while (json_next_element(&r))
	{
		assert_true(json_enter_object(&r));
		while (json_next_key(&r, &key))
		{
			bool payload = json_string_equals(&key, "payload");

			assert_true(json_value(&r, &value));
			assert_true(
				span_equals(value.text, span_of(payload ? payloads[items] : queues[items])));
			members++;
		}
		items++;
	}
	assert_false(json_next_key(&r, &key));
	assert_true(json_end(&r));
	assert_int_equal(items, 2);
	assert_int_equal(members, 4);
	free(copy);
}

static void
test_peek_names_the_next_value(void **state)
{
	static const JsonType types[] = {JSON_NULL,	  JSON_TRUE,   JSON_FALSE, JSON_NUMBER,
									 JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT};
	static const char text[] = "[null, true ,false,-1,2,\"\",[] , {}]";
	JsonReader r;
	JsonValue value;
	JsonType type;

	json_begin(&r, text, sizeof(text) - 1, 2);
	assert_true(json_enter_array(&r));
	for (size_t i = 0; i < lengthof(types); i++)
	{
		assert_true(json_next_element(&r));
		assert_true(json_peek(&r, &type));
		assert_int_equal(type, types[i]);
		assert_true(json_value(&r, &value));
		assert_int_equal(value.type, types[i]);
	}
	assert_false(json_next_element(&r));
	assert_true(json_end(&r));
}

static void
test_structure_errors(void **state)
{
	assert_refused("", "unexpected end", 0);
	assert_refused("  ", "unexpected end", 2);
	assert_refused("[", "unexpected end", 1);
	assert_refused("[1", "unexpected end", 2);
	assert_refused("[1,", "unexpected end", 3);
	assert_refused("[1,]", "unexpected character", 3);
	assert_refused("[,1]", "unexpected character", 1);
	assert_refused("[1 2]", "unexpected character", 3);
	assert_refused("[1}", "unexpected character", 2);
	assert_refused("]", "unexpected character", 0);
	assert_refused("{", "unexpected end", 1);
	assert_refused("{1:2}", "unexpected character", 1);
	assert_refused("{\"a\"", "unexpected end", 4);
	assert_refused("{\"a\" 1}", "unexpected character", 5);
	assert_refused("{\"a\":", "unexpected end", 5);
	assert_refused("{\"a\":}", "unexpected character", 5);
	assert_refused("{\"a\":1,", "unexpected end", 7);
	assert_refused("{\"a\":1,}", "unexpected character", 7);
	assert_refused("{\"a\":1]", "unexpected character", 6);
	assert_refused("{,\"a\":1}", "unexpected character", 1);
	assert_refused("1 2", "text after the value", 2);
	assert_refused("{} x", "text after the value", 3);
	assert_refused("[]]", "text after the value", 2);
	assert_refused("\xEF\xBB\xBF{}", "unexpected character", 0);
	assert_refused("// c\n1", "unexpected character", 0);
	assert_refused("'a'", "unexpected character", 0);
	assert_refused("nul", "unknown literal", 0);
	assert_refused("TRUE", "unexpected character", 0);
	assert_refused("NaN", "unexpected character", 0);
	assert_refused("nullx", "text after the value", 4);
	assert_refused("[1,\v2]", "unexpected character", 3);
	assert_non_null(read_whole("1\0", 2, 1, NULL));
}

static void
test_empty_text_without_memory(void **state)
{
	Buf buf = {0};
	JsonReader r;
	JsonValue value;

	json_begin(&r, NULL, 0, 1);
	assert_false(json_value(&r, &value));
	assert_string_equal(r.error, "unexpected end");
	json_write_string(&buf, NULL, 0);
	assert_memory_equal(buf.data, "\"\"", 2);
	buf_reset(&buf);
	json_write_text(&buf, (Span){NULL, 0});
	json_write_text(&buf, (Span){"", 0});
	assert_int_equal(buf.len, 6);
	assert_memory_equal(buf.data, "null\"\"", 6);
	buf_free(&buf);
}

static void
test_number_errors(void **state)
{
	assert_refused("-", "malformed number", 1);
	assert_refused("-a", "malformed number", 1);
	assert_refused("+1", "unexpected character", 0);
	assert_refused(".5", "unexpected character", 0);
	assert_refused("01", "text after the value", 1);
	assert_refused("-01", "text after the value", 2);
	assert_refused("[00]", "unexpected character", 2);
	assert_refused("1.", "malformed number", 2);
	assert_refused("[1.]", "malformed number", 3);
	assert_refused("1.e5", "malformed number", 2);
	assert_refused("1e", "malformed number", 2);
	assert_refused("1e+", "malformed number", 3);
	assert_refused("1e+-1", "malformed number", 3);
	assert_refused("0x10", "text after the value", 1);
	assert_refused("1_000", "text after the value", 1);
	assert_refused("-Infinity", "malformed number", 1);
}

static void
test_string_errors(void **state)
{
	assert_refused("\"", "unterminated string", 1);
	assert_refused("\"abc", "unterminated string", 4);
	assert_refused("\"abcdefghijklmnop", "unterminated string", 17);
	assert_refused("\"\\", "unterminated string", 1);
	assert_refused("\"\\\"", "unterminated string", 3);
	assert_refused("\"\\x\"", "unknown escape", 1);
	assert_refused("\"\\U0041\"", "unknown escape", 1);
	assert_refused("\"\\u12\"", "malformed escape", 1);
	assert_refused("\"\\u12G4\"", "malformed escape", 1);
	assert_refused("\"a\nb\"", "control character in a string", 2);
	assert_refused("\"a\tb\"", "control character in a string", 2);
	assert_refused("\"\\\n\"", "unknown escape", 1);
	assert_refused("\"\\uD800\"", "lone surrogate", 1);
	assert_refused("\"\\uD800\\u0041\"", "lone surrogate", 1);
	assert_refused("\"\\uD800\\uD800\"", "lone surrogate", 1);
	assert_refused("\"\\uD800 \\uDC00\"", "lone surrogate", 1);
	assert_refused("\"\\uDBFF\\uE000\"", "lone surrogate", 1);
	assert_refused("\"\\uDC00\"", "lone surrogate", 1);
	assert_refused("\"\\udfff\\ud800\"", "lone surrogate", 1);
	assert_refused("\"\\uDC00\\uDC00\"", "lone surrogate", 1);
	assert_refused("\"a\xFF\"", "invalid UTF-8", 2);
	assert_refused("\"\xC0\xAF\"", "invalid UTF-8", 1);
	assert_refused("\"\xED\xA0\x80\"", "invalid UTF-8", 1);
	assert_refused("\"\xF4\x90\x80\x80\"", "invalid UTF-8", 1);
	assert_refused("\"\xE2\x82\"", "invalid UTF-8", 1);
	assert_refused("{\"\xFF\":1}", "invalid UTF-8", 2);
	assert_refused("{\"\\ud800\":1}", "lone surrogate", 2);
	assert_accepted("\"\\uD800\\uDC00\\udbff\\udfff\"");
	assert_accepted("\"\\u0000\\uD7FF\\uE000\\uFFFF\"");
}

/* A special byte at every place of strings around the word size */
static void
test_every_byte_at_every_place(void **state)
{
	for (size_t len = 1; len <= 20; len++)
	{
		for (size_t at = 0; at < len; at++)
		{
			for (unsigned byte = 0; byte < 256; byte++)
			{
				char text[24];
				bool plain = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';

				memset(text, 'n', sizeof(text));
				text[0] = '"';
				text[1 + at] = (char) byte;
				text[1 + len] = '"';

				/* A backslash makes an escape of what follows: \n, or the last quote. */
				if (byte == '\\')
					plain = at + 1 < len;
				assert_int_equal(read_whole(text, len + 2, 1, NULL) == NULL, plain);
			}
		}
	}
}

static const char *
read_nested(const char *open, const char *inner, const char *close, int depth, int max_depth)
{
	Buf buf = {0};
	const char *error;

	for (int i = 0; i < depth; i++)
		buf_append_str(&buf, open);
	buf_append_str(&buf, inner);
	for (int i = 0; i < depth; i++)
		buf_append_str(&buf, close);
	error = read_whole(buf.data, buf.len, max_depth, NULL);
	buf_free(&buf);
	return error;
}

static void
test_depth_limit(void **state)
{
	assert_null(read_nested("[", "", "]", JSON_MAX_DEPTH, JSON_MAX_DEPTH));
	assert_string_equal(read_nested("[", "", "]", JSON_MAX_DEPTH + 1, JSON_MAX_DEPTH),
						"nested too deeply");
	assert_null(read_nested("{\"a\":", "1", "}", JSON_MAX_DEPTH, JSON_MAX_DEPTH));
	assert_string_equal(read_nested("{\"a\":", "1", "}", JSON_MAX_DEPTH + 1, JSON_MAX_DEPTH),
						"nested too deeply");
	assert_null(read_nested("[{\"a\":", "[]", "}]", 31, 63));
	assert_string_equal(read_nested("[{\"a\":", "[]", "}]", 31, 62), "nested too deeply");

	/* A limit above the greatest one is that one. */
	assert_string_equal(read_nested("[", "", "]", JSON_MAX_DEPTH + 1, INT_MAX),
						"nested too deeply");

	/* Siblings do not add up. */
	assert_null(read_nested("[],", "[]", "", 0, 1));
	assert_accepted("[[],[],[[]],{\"a\":[],\"b\":{}}]");
	assert_null(read_whole("[[],[],[]]", 10, 2, NULL));
	assert_null(read_whole("1", 1, 0, NULL));
	assert_non_null(read_whole("[]", 2, 0, NULL));
}

static void
test_depth_counts_entered_containers(void **state)
{
	static const char text[] = "[[[1]]]";

	for (int max_depth = 2; max_depth <= 3; max_depth++)
	{
		JsonReader r;
		JsonValue value;

		json_begin(&r, text, sizeof(text) - 1, max_depth);
		assert_true(json_enter_array(&r));
		assert_true(json_next_element(&r));
		assert_true(json_enter_array(&r));
		assert_true(json_next_element(&r));
		assert_int_equal(json_value(&r, &value), max_depth == 3);
	}
}

static void
test_deep_nesting_costs_nothing(void **state)
{
	size_t len = 1000000;
	char *text = malloc(len);
	size_t error_at;

	assert_non_null(text);
	memset(text, '[', len);
	assert_string_equal(read_whole(text, len, JSON_MAX_DEPTH, &error_at), "nested too deeply");
	assert_int_equal(error_at, JSON_MAX_DEPTH);
	free(text);
}

static void
test_enter_needs_the_right_kind(void **state)
{
	JsonReader r;

	json_begin(&r, " []", 3, 1);
	assert_false(json_enter_object(&r));
	assert_string_equal(r.error, "an object was expected");
	assert_int_equal(r.pos - r.start, 1);
	json_begin(&r, "{}", 2, 1);
	assert_false(json_enter_array(&r));
	assert_string_equal(r.error, "an array was expected");
	json_begin(&r, "", 0, 1);
	assert_false(json_enter_array(&r));
	assert_string_equal(r.error, "unexpected end");
}

static void
test_errors_stay(void **state)
{
	JsonReader r;
	JsonValue value;
	JsonType type;
	const char *pos;

	json_begin(&r, "[?,[],{}]", 9, 2);
	assert_true(json_enter_array(&r));
	assert_true(json_next_element(&r));
	assert_false(json_value(&r, &value));
	pos = r.pos;
	assert_false(json_value(&r, &value));
	assert_false(json_next_element(&r));
	assert_false(json_next_key(&r, &value));
	assert_false(json_peek(&r, &type));
	assert_false(json_enter_array(&r));
	assert_false(json_enter_object(&r));
	assert_false(json_end(&r));
	assert_string_equal(r.error, "unexpected character");
	assert_ptr_equal(r.pos, pos);
}

static void
test_end_wants_one_whole_value(void **state)
{
	JsonReader r;
	JsonValue value;

	/* Nothing read, a container left open, a second value */
	json_begin(&r, "1", 1, 1);
	assert_false(json_end(&r));
	json_begin(&r, "", 0, 1);
	assert_false(json_end(&r));
	json_begin(&r, "[1]", 3, 1);
	assert_true(json_enter_array(&r));
	assert_true(json_next_element(&r));
	assert_true(json_value(&r, &value));
	assert_false(json_end(&r));
	json_begin(&r, "1 2", 3, 1);
	assert_true(json_value(&r, &value));
	assert_false(json_value(&r, &value));
	assert_string_equal(r.error, "text after the value");
}

static void
assert_decoded(const char *text, const char *expected, size_t len)
{
	JsonValue value = string_value(text);
	Buf buf = {0};

	json_string_decode(&value, &buf);
	assert_int_equal(value.escaped, strchr(text, '\\') != NULL);
	assert_int_equal(buf.len, len);
	if (len > 0)
		assert_memory_equal(buf.data, expected, len);
	buf_free(&buf);
}

static void
test_decode(void **state)
{
	assert_decoded("\"\"", "", 0);
	assert_decoded("\"plain\"", "plain", 5);
	assert_decoded("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
	assert_decoded("\"a\\u0000b\"", "a\0b", 3);
	assert_decoded("\"\\u0041\\u007f\"", "A\x7F", 2);
	assert_decoded("\"\\u0080\\u07FF\"", "\xC2\x80\xDF\xBF", 4);
	assert_decoded("\"\\u0800\\uffff\"", "\xE0\xA0\x80\xEF\xBF\xBF", 6);
	assert_decoded("\"\\uD7FF\\uE000\"", "\xED\x9F\xBF\xEE\x80\x80", 6);
	assert_decoded("\"\\uD83D\\uDC51\"", "\xF0\x9F\x91\x91", 4);
	assert_decoded("\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 8);
	assert_decoded("\"x\\ny\xC3\xBC\\u00fCz\"", "x\ny\xC3\xBC\xC3\xBCz", 8);
}

static void
test_string_equals(void **state)
{
	JsonValue plain = string_value("\"partition\"");
	JsonValue escaped = string_value("\"\\u0070artitio\\u006e\"");
	JsonValue empty = string_value("\"\"");
	JsonValue nul = string_value("\"a\\u0000\"");
	JsonValue wide = string_value("\"\\uD83D\\uDC51\"");

	assert_true(json_string_equals(&plain, "partition"));
	assert_true(json_string_equals(&escaped, "partition"));
	assert_false(json_string_equals(&plain, "partitio"));
	assert_false(json_string_equals(&plain, "partitions"));
	assert_false(json_string_equals(&escaped, "partitio"));
	assert_false(json_string_equals(&escaped, "partitions"));
	assert_false(json_string_equals(&escaped, "Partition"));
	assert_true(json_string_equals(&empty, ""));
	assert_false(json_string_equals(&empty, "a"));
	assert_false(json_string_equals(&plain, ""));
	assert_false(json_string_equals(&nul, "a"));
	assert_true(json_string_equals(&wide, "\xF0\x9F\x91\x91"));
}

static void
assert_written(const char *text, size_t len, const char *expected)
{
	char *copy = exact_copy(text, len);
	Buf buf = {0};

	json_write_string(&buf, copy, len);
	assert_int_equal(buf.len, strlen(expected));
	assert_memory_equal(buf.data, expected, buf.len);
	assert_null(read_whole(buf.data, buf.len, 1, NULL));
	buf_free(&buf);
	free(copy);
}

static void
test_write_string(void **state)
{
	assert_written("", 0, "\"\"");
	assert_written("plain text, longer than a word", 30, "\"plain text, longer than a word\"");
	assert_written("\"\\/", 3, "\"\\\"\\\\/\"");
	assert_written("\n\r\t\b\f", 5, "\"\\n\\r\\t\\u0008\\u000c\"");
	assert_written("\0\x1F\x7F", 3, "\"\\u0000\\u001f\x7F\"");
	assert_written("gr\xC3\xBC\xC3\x9F\xF0\x9F\x91\x91", 10,
				   "\"gr\xC3\xBC\xC3\x9F\xF0\x9F\x91\x91\"");
	assert_written("a\xFF\x62", 3, "\"a\xEF\xBF\xBD\x62\"");
	assert_written("\xE2\x82", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
	assert_written("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

static void
test_written_string_reads_back(void **state)
{
	for (unsigned c = 0; c < 0x80; c++)
	{
		char text[3] = {'x', (char) c, 'y'};
		Buf written = {0};
		Buf decoded = {0};
		JsonReader r;
		JsonValue value;

		json_write_string(&written, text, sizeof(text));
		json_begin(&r, written.data, written.len, 1);
		assert_true(json_value(&r, &value));
		assert_true(json_end(&r));
		json_string_decode(&value, &decoded);
		assert_int_equal(decoded.len, sizeof(text));
		assert_memory_equal(decoded.data, text, sizeof(text));
		buf_free(&written);
		buf_free(&decoded);
	}
}

static bool
integer(const char *text, long long *out)
{
	JsonReader r;
	JsonValue value;

	json_begin(&r, text, strlen(text), 1);
	assert_true(json_value(&r, &value));
	return json_int64(&value, out);
}

static void
test_integers(void **state)
{
	static const char *const refused[] = {"9223372036854775808",
										  "-9223372036854775809",
										  "92233720368547758070",
										  "18446744073709551616",
										  "100000000000000000000000000000",
										  "1.0",
										  "1e2",
										  "1E2",
										  "-0.5",
										  "\"1\"",
										  "null",
										  "true",
										  "[]"};
	long long n;

	assert_true(integer("0", &n));
	assert_true(n == 0);
	assert_true(integer("-0", &n));
	assert_true(n == 0);
	assert_true(integer("42", &n));
	assert_true(n == 42);
	assert_true(integer("-1", &n));
	assert_true(n == -1);
	assert_true(integer("9223372036854775807", &n));
	assert_true(n == LLONG_MAX);
	assert_true(integer("-9223372036854775808", &n));
	assert_true(n == LLONG_MIN);
	for (size_t i = 0; i < lengthof(refused); i++)
		assert_false(integer(refused[i], &n));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_value_is_the_span_of_its_text),
		cmocka_unit_test(test_member_values_are_spans),
		cmocka_unit_test(test_peek_names_the_next_value),
		cmocka_unit_test(test_structure_errors),
		cmocka_unit_test(test_empty_text_without_memory),
		cmocka_unit_test(test_number_errors),
		cmocka_unit_test(test_string_errors),
		cmocka_unit_test(test_every_byte_at_every_place),
		cmocka_unit_test(test_depth_limit),
		cmocka_unit_test(test_depth_counts_entered_containers),
		cmocka_unit_test(test_deep_nesting_costs_nothing),
		cmocka_unit_test(test_enter_needs_the_right_kind),
		cmocka_unit_test(test_errors_stay),
		cmocka_unit_test(test_end_wants_one_whole_value),
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_string_equals),
		cmocka_unit_test(test_write_string),
		cmocka_unit_test(test_written_string_reads_back),
		cmocka_unit_test(test_integers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
