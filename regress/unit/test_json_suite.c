/*
 * test_json_suite.c
 *		The public JSON parsing suite (nst/JSONTestSuite), when it is at hand.
 *
 * The suite's files begin with y_ (to be accepted), n_ (to be refused) and i_
 * (for the parser to decide: docs/json.md gives the reasons).  They are looked
 * for in json-parsing/test_parsing under QUEEN_TEST_DATA.
 */
#include "unit.h"

#include "json.h"

#include <dirent.h>

#define DEFAULT_DATA "../shared/data"

/* The i_ cases, as docs/json.md decides them */
static const char *const accepted[] = {
	"i_number_double_huge_neg_exp",	 "i_number_huge_exp",
	"i_number_neg_int_huge_exp",	 "i_number_pos_double_huge_exp",
	"i_number_real_neg_overflow",	 "i_number_real_pos_overflow",
	"i_number_real_underflow",		 "i_number_too_big_neg_int",
	"i_number_too_big_pos_int",		 "i_number_very_big_negative_int",
	"i_structure_500_nested_arrays",
};

static const char *const refused[] = {
	"i_object_key_lone_2nd_surrogate",
	"i_string_1st_surrogate_but_2nd_missing",
	"i_string_1st_valid_surrogate_2nd_invalid",
	"i_string_UTF-16LE_with_BOM",
	"i_string_UTF-8_invalid_sequence",
	"i_string_UTF8_surrogate_U+D800",
	"i_string_incomplete_surrogate_and_escape_valid",
	"i_string_incomplete_surrogate_pair",
	"i_string_incomplete_surrogates_escape_valid",
	"i_string_invalid_lonely_surrogate",
	"i_string_invalid_surrogate",
	"i_string_invalid_utf-8",
	"i_string_inverted_surrogates_U+1D11E",
	"i_string_iso_latin_1",
	"i_string_lone_second_surrogate",
	"i_string_lone_utf8_continuation_byte",
	"i_string_not_in_unicode_range",
	"i_string_overlong_sequence_2_bytes",
	"i_string_overlong_sequence_6_bytes",
	"i_string_overlong_sequence_6_bytes_null",
	"i_string_truncated-utf-8",
	"i_string_utf16BE_no_BOM",
	"i_string_utf16LE_no_BOM",
	"i_structure_UTF-8_BOM_empty_object",
};

/* What the suite and the tables above ask for. */
static bool
wanted_verdict(const char *name)
{
	size_t len = strlen(name) - strlen(".json");

	if (name[0] != 'i')
		return name[0] == 'y';
	for (size_t i = 0; i < lengthof(accepted); i++)
	{
		if (span_equals(span_of(accepted[i]), (Span){name, len}))
			return true;
	}
	for (size_t i = 0; i < lengthof(refused); i++)
	{
		if (span_equals(span_of(refused[i]), (Span){name, len}))
			return false;
	}
	fail_msg("no verdict was decided for %s", name);
	return false;
}

static Buf
read_file(const char *dir, const char *name)
{
	char path[8192];
	char chunk[4096];
	Buf buf = {0};
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "rb");
	assert_non_null(file);
	while ((n = fread(chunk, 1, sizeof(chunk), file)) > 0)
		buf_append(&buf, chunk, n);
	assert_false(ferror(file) || buf.failed);
	fclose(file);
	return buf;
}

/* The text without the white space around it. */
static Span
trimmed(Span text)
{
	static const char space[] = " \t\r\n";

	while (text.len > 0 && memchr(space, text.ptr[0], 4) != NULL)
		text = (Span){text.ptr + 1, text.len - 1};
	while (text.len > 0 && memchr(space, text.ptr[text.len - 1], 4) != NULL)
		text.len--;
	return text;
}

/* Reads "text" as a member of an object, as payloads are. */
static bool
accepted_as_payload(Span text)
{
	Buf body = {0};
	JsonReader r;
	JsonValue key;
	JsonValue payload = {0};
	char *copy;
	bool ok;

	buf_append_str(&body, "{\"payload\":");
	buf_append(&body, text.ptr, text.len);
	buf_append_str(&body, "}");
	copy = exact_copy(body.data, body.len);
	json_begin(&r, copy, body.len, JSON_MAX_DEPTH);
	ok = json_enter_object(&r) && json_next_key(&r, &key) && json_value(&r, &payload) &&
		 !json_next_key(&r, &key) && json_end(&r);
	if (ok)
		assert_true(span_equals(payload.text, trimmed(text)));
	free(copy);
	buf_free(&body);
	return ok;
}

static bool
accepted_alone(Span text)
{
	char *copy = exact_copy(text.ptr, text.len);
	JsonReader r;
	JsonValue value = {0};
	bool ok;

	json_begin(&r, copy, text.len, JSON_MAX_DEPTH);
	ok = json_value(&r, &value) && json_end(&r);
	if (ok)
		assert_true(span_equals(value.text, trimmed(text)));
	free(copy);
	return ok;
}

/* Directory of the suite, opened by main(). */
static const char *suite_path;
static DIR *suite_dir;

static void
test_every_file_of_the_suite(void **state)
{
	struct dirent *entry;
	int files = 0;
	int wrong = 0;

	while ((entry = readdir(suite_dir)) != NULL)
	{
		Buf buf;
		Span text;
		bool wanted;

		if (strstr(entry->d_name, ".json") == NULL)
			continue;
		files++;
		buf = read_file(suite_path, entry->d_name);
		text = (Span){buf.data, buf.len};
		wanted = wanted_verdict(entry->d_name);
		if (accepted_alone(text) != wanted || accepted_as_payload(text) != wanted)
		{
			print_error("%s: should be %s\n", entry->d_name, wanted ? "accepted" : "refused");
			wrong++;
		}
		buf_free(&buf);
	}
	assert_int_equal(wrong, 0);
	assert_true(files >= 300);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_file_of_the_suite),
	};
	const char *data = getenv("QUEEN_TEST_DATA");
	char path[4096];
	int failed;

	snprintf(path, sizeof(path), "%s/json-parsing/test_parsing", data ? data : DEFAULT_DATA);
	suite_path = path;
	suite_dir = opendir(path);
	if (suite_dir == NULL)
	{
		/* cmocka reports a skipped test as failed, so the whole program is skipped. */
		printf("1..0 # SKIP no JSON parsing suite in %s\n", path);
		return 0;
	}
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	closedir(suite_dir);
	return failed;
}
