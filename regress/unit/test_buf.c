/*
 * test_buf.c
 *		The growable buffer: growth, formatting, and what a failed allocation does.
 */
#include "unit.h"

#include "buf.h"
#include "fail_alloc.h"

static void
test_append_keeps_contents(void **state)
{
	Buf buf = {0};

	for (int i = 0; i < 100000; i++)
		buf_append_char(&buf, (char) i);
	assert_false(buf.failed);
	assert_int_equal(buf.len, 100000);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(buf.data[i], (char) i);
	buf_free(&buf);
	assert_null(buf.data);
	assert_int_equal(buf.len, 0);
}

static void
test_append_nothing(void **state)
{
	Buf buf = {0};

	buf_append(&buf, NULL, 0);
	buf_append_str(&buf, "");
	buf_printf(&buf, "%s", "");
	assert_false(buf.failed);
	assert_int_equal(buf.len, 0);
	buf_free(&buf);
}

static void
test_printf_at_every_fill(void **state)
{
	/* The formatted text meets every distance from the end of the memory. */
	for (size_t fill = 0; fill < 600; fill++)
	{
		Buf buf = {0};

		for (size_t i = 0; i < fill; i++)
			buf_append_char(&buf, '.');
		buf_printf(&buf, "%d-%s", 42, "abcdefgh");
		assert_int_equal(buf.len, fill + 11);
		assert_memory_equal(buf.data + fill, "42-abcdefgh", 11);
		buf_free(&buf);
	}
}

static void
test_numbers(void **state)
{
	static const uint64_t numbers[] = {0, 9, 10, 4294967296, UINT64_MAX};
	Buf buf = {0};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
	{
		buf_append_number(&buf, numbers[i]);
		buf_append_char(&buf, ' ');
	}
	buf_append_char(&buf, '\0');
	assert_string_equal(buf.data, "0 9 10 4294967296 18446744073709551615 ");
	buf_free(&buf);
}

static void
test_reset_keeps_memory(void **state)
{
	Buf buf = {0};
	char *data;

	buf_append_str(&buf, "first");
	data = buf.data;
	buf_reset(&buf);
	assert_int_equal(buf.len, 0);
	buf_append_str(&buf, "second");
	assert_ptr_equal(buf.data, data);
	assert_memory_equal(buf.data, "second", 6);
	buf_free(&buf);
}

static void
test_impossible_size_fails(void **state)
{
	Buf buf = {0};

	buf_append_str(&buf, "x");
	assert_false(buf_reserve(&buf, SIZE_MAX));
	assert_true(buf.failed);
	buf_reset(&buf);
	assert_false(buf_reserve(&buf, SIZE_MAX - 1));
	buf_reset(&buf);
	assert_true(buf_reserve(&buf, 1000));
	buf_free(&buf);
}

/* An answer of several pieces that outgrows its memory some times. */
static void
build_answer(Buf *buf)
{
	for (int i = 0; i < 1000; i++)
	{
		buf_append_char(buf, '[');
		buf_printf(buf, "%d", i);
		buf_append_str(buf, "]");
	}
}

static void
test_every_allocation_fails_once(void **state)
{
	bool failed = true;
	int runs = 0;

	for (long n = 1; failed; n++, runs++)
	{
		Buf buf = {0};
		size_t len;

		fail_alloc_at(n);
		build_answer(&buf);
		failed = fail_alloc_end();

		assert_int_equal(buf.failed, failed);
		len = buf.len;
		buf_append_str(&buf, "later");
		assert_int_equal(buf.len, failed ? len : len + 5);

		/* After a reset the buffer is as good as new. */
		buf_reset(&buf);
		build_answer(&buf);
		assert_false(buf.failed);
		assert_int_equal(buf.len, 2 * 1000 + 10 + 90 * 2 + 900 * 3);
		buf_free(&buf);
	}
	assert_true(runs > 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_append_keeps_contents),
		cmocka_unit_test(test_append_nothing),
		cmocka_unit_test(test_printf_at_every_fill),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_reset_keeps_memory),
		cmocka_unit_test(test_impossible_size_fails),
		cmocka_unit_test(test_every_allocation_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
