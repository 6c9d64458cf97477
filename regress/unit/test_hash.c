/*
 * test_hash.c
 *		The hash of transaction ids against values of the reference library.
 */
#include "unit.h"

#include "hash.h"

static void
assert_hash(const char *id, size_t len, const char *expected)
{
	char *copy = exact_copy(id, len);
	uint8_t hash[16];
	char hex[33];

	transaction_hash(copy, len, hash);
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	assert_string_equal(hex, expected);
	free(copy);
}

static void
test_v03_hash_vectors(void **state)
{
	char zs[300];

	memset(zs, 'z', sizeof(zs));
	assert_hash("", 0, "99aa06d3014798d86001c324468d497f");
	assert_hash("t1", 2, "a94d750d3a17fbe5c03234fac12ac33c");
	assert_hash("t2", 2, "1dee9dccc2f18065c23bcc2a4bb537e0");
	assert_hash("gr\xC3\xBC\xC3\x9F", 6, "ea6d85cf166c9852a20c2ea22f81c8b8");
	assert_hash("0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b", 36, "cb8f827d29a184ae2e02b935ccc504f5");
	assert_hash(zs, sizeof(zs), "c4f0fbb15864b96a4d3f26454e4c3335");
}

static void
test_empty_id_without_bytes(void **state)
{
	uint8_t null_hash[16];
	uint8_t empty_hash[16];

	transaction_hash(NULL, 0, null_hash);
	transaction_hash("", 0, empty_hash);
	assert_memory_equal(null_hash, empty_hash, 16);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v03_hash_vectors),
		cmocka_unit_test(test_empty_id_without_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
