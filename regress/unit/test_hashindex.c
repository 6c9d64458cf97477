/*
 * test_hashindex.c
 *		Equal hashes in a batch are found, whatever slots they share.
 */
#include "unit.h"

#include "hashindex.h"

#define N 1000

/* Hash number i: its slot, taken from the first bytes, is "slot". */
static void
make_hash(uint8_t hash[16], uint64_t slot, uint64_t i)
{
	memcpy(hash, &slot, sizeof(slot));
	memcpy(hash + 8, &i, sizeof(i));
}

/* Adds N hashes of the given spread twice, and looks for others. */
static void
check_spread(uint64_t slots)
{
	static uint8_t hashes[2 * N][16];
	void *memory = calloc(1, hash_index_size(N));
	HashIndex index;

	hash_index_init(&index, N, memory);
	for (uint64_t i = 0; i < 2 * N; i++)
		make_hash(hashes[i], i % slots, i);
	for (uint32_t i = 0; i < N; i++)
	{
		assert_int_equal(hash_index_find(&index, hashes[i]), -1);
		assert_int_equal(hash_index_add(&index, hashes[i], i), -1);
	}
	for (uint32_t i = 0; i < N; i++)
	{
		uint8_t copy[16];

		memcpy(copy, hashes[i], sizeof(copy));
		assert_int_equal(hash_index_find(&index, copy), i);
		assert_int_equal(hash_index_add(&index, copy, N + i), i);
		assert_int_equal(hash_index_find(&index, hashes[N + i]), -1);
	}
	free(memory);
}

static void
test_slots_of_their_own(void **state)
{
	check_spread(UINT64_MAX);
}

static void
test_all_in_one_slot(void **state)
{
	check_spread(1);
}

static void
test_some_to_a_slot(void **state)
{
	check_spread(7);
}

static void
test_equal_in_the_first_half_only(void **state)
{
	uint8_t a[16] = {0}, b[16] = {0};
	void *memory = calloc(1, hash_index_size(2));
	HashIndex index;

	b[15] = 1;
	hash_index_init(&index, 2, memory);
	assert_int_equal(hash_index_add(&index, a, 0), -1);
	assert_int_equal(hash_index_add(&index, b, 1), -1);
	assert_int_equal(hash_index_find(&index, a), 0);
	assert_int_equal(hash_index_find(&index, b), 1);
	free(memory);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_of_their_own),
		cmocka_unit_test(test_all_in_one_slot),
		cmocka_unit_test(test_some_to_a_slot),
		cmocka_unit_test(test_equal_in_the_first_half_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
