/*
 * test_histogram.c
 *		The latency histogram of the benchmarks.
 */
#include "unit.h"

#include "../../bench/histogram.h"

static Histogram histogram;

static int
empty(void **state)
{
	memset(&histogram, 0, sizeof(histogram));
	return 0;
}

static void
test_empty(void **state)
{
	assert_int_equal(histogram_quantile(&histogram, 0.5), 0);
	assert_int_equal(histogram_quantile(&histogram, 1), 0);
}

static void
test_small_values_are_exact(void **state)
{
	for (int i = 1; i <= 100; i++)
		histogram_add(&histogram, i);
	assert_int_equal(histogram.count, 100);
	assert_int_equal(histogram_quantile(&histogram, 0), 1);
	assert_int_equal(histogram_quantile(&histogram, 0.5), 50);
	assert_int_equal(histogram_quantile(&histogram, 0.99), 99);
	assert_int_equal(histogram_quantile(&histogram, 1), 100);
}

/* A value is between the largest one below its bucket and its bucket's largest. */
static void
test_error_is_bounded(void **state)
{
	for (int64_t us = 1; us < INT64_C(1) << 40; us += 1 + us / 100)
	{
		int64_t reported;

		empty(NULL);
		histogram_add(&histogram, us);
		histogram_add(&histogram, INT64_MAX); /* or the maximum would be reported */
		reported = histogram_quantile(&histogram, 0.5);
		assert_true(reported >= us);
		assert_true(reported - us <= us / 128);
	}
}

/* No bucket is skipped or used for two ranges where the widths change. */
static void
test_buckets_meet(void **state)
{
	for (int shift = 6; shift < 40; shift++)
		for (int64_t us = (INT64_C(1) << shift) - 2; us <= (INT64_C(1) << shift) + 2; us++)
		{
			empty(NULL);
			histogram_add(&histogram, us);
			histogram_add(&histogram, 2 * us);
			histogram_add(&histogram, 4 * us);
			assert_true(histogram_quantile(&histogram, 0.3) < histogram_quantile(&histogram, 0.6));
			assert_true(histogram_quantile(&histogram, 0.6) < histogram_quantile(&histogram, 1));
		}
}

static void
test_extremes(void **state)
{
	histogram_add(&histogram, -5);
	histogram_add(&histogram, INT64_MAX);
	assert_int_equal(histogram.count, 2);
	assert_int_equal(histogram.max, INT64_MAX);
	assert_int_equal(histogram_quantile(&histogram, 0.5), 0);
	assert_true(histogram_quantile(&histogram, 1) >= INT64_C(1) << 40);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_empty, empty),
		cmocka_unit_test_setup(test_small_values_are_exact, empty),
		cmocka_unit_test(test_error_is_bounded),
		cmocka_unit_test(test_buckets_meet),
		cmocka_unit_test_setup(test_extremes, empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
