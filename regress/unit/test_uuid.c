/*
 * test_uuid.c
 *		The version 7 generator, with a clock the test sets, and the text form.
 */
#include "unit.h"

#include "uuid.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define PER_THREAD 20000

/* The clock: real while frozen_millis is 0.  Linked with --wrap. */
static uint64_t frozen_millis;

extern int __real_clock_gettime(clockid_t id, struct timespec *now);
extern int __wrap_clock_gettime(clockid_t id, struct timespec *now);

int
__wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	if (frozen_millis == 0)
		return __real_clock_gettime(id, now);
	now->tv_sec = (time_t) (frozen_millis / 1000);
	now->tv_nsec = (long) (frozen_millis % 1000 * 1000000);
	return 0;
}

static uint64_t
millis_of(const Uuid *uuid)
{
	uint64_t millis = 0;

	for (int i = 0; i < 6; i++)
		millis = millis << 8 | uuid->bytes[i];
	return millis;
}

static unsigned
counter_of(const Uuid *uuid)
{
	return (uuid->bytes[6] & 15u) << 8 | uuid->bytes[7];
}

static void
assert_version_7(const Uuid *uuid)
{
	assert_int_equal(uuid->bytes[6] >> 4, 7);
	assert_int_equal(uuid->bytes[8] >> 6, 2);
}

static void
assert_ascending(const Uuid *before, const Uuid *after)
{
	assert_true(memcmp(before->bytes, after->bytes, 8) < 0);
}

static void
test_follows_the_clock(void **state)
{
	Uuid uuid;
	struct timespec now;
	uint64_t before;
	uint64_t after;

	clock_gettime(CLOCK_REALTIME, &now);
	before = (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
	uuid_v7(&uuid);
	clock_gettime(CLOCK_REALTIME, &now);
	after = (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
	assert_version_7(&uuid);
	assert_in_range(millis_of(&uuid), before, after);
}

static void
test_ascending_in_one_thread(void **state)
{
	Uuid before;
	Uuid after;

	uuid_v7(&before);
	for (int i = 0; i < 100000; i++)
	{
		uuid_v7(&after);
		assert_version_7(&after);
		assert_ascending(&before, &after);
		before = after;
	}
}

static void *
generate(void *uuids)
{
	for (int i = 0; i < PER_THREAD; i++)
		uuid_v7((Uuid *) uuids + i);
	return NULL;
}

static int
compare_uuids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static void
test_ascending_over_threads(void **state)
{
	static Uuid uuids[THREADS][PER_THREAD];
	pthread_t threads[THREADS];
	Uuid *all = &uuids[0][0];

	for (int t = 0; t < THREADS; t++)
		assert_int_equal(pthread_create(&threads[t], NULL, generate, uuids[t]), 0);
	for (int t = 0; t < THREADS; t++)
		assert_int_equal(pthread_join(threads[t], NULL), 0);

	for (int t = 0; t < THREADS; t++)
	{
		for (int i = 1; i < PER_THREAD; i++)
			assert_ascending(&uuids[t][i - 1], &uuids[t][i]);
	}

	/* No stamp was given out twice, whatever the random bits. */
	qsort(all, THREADS * PER_THREAD, sizeof(Uuid), compare_uuids);
	for (int i = 1; i < THREADS * PER_THREAD; i++)
		assert_ascending(&all[i - 1], &all[i]);
}

static void
test_v94_ascending_when_the_clock_steps_back(void **state)
{
	Uuid before;
	Uuid after;
	uint64_t start;

	uuid_v7(&before);
	start = millis_of(&before) + 10000;

	frozen_millis = start;
	uuid_v7(&before);
	assert_int_equal(millis_of(&before), start);
	assert_int_equal(counter_of(&before), 0);

	/* An hour back: the stamps go on from where they were. */
	frozen_millis = start - 3600 * 1000;
	for (unsigned i = 1; i < 4096; i++)
	{
		uuid_v7(&after);
		assert_int_equal(millis_of(&after), start);
		assert_int_equal(counter_of(&after), i);
		assert_ascending(&before, &after);
		before = after;
	}

	/* The counter is full: it carries into the milliseconds. */
	uuid_v7(&after);
	assert_int_equal(millis_of(&after), start + 1);
	assert_int_equal(counter_of(&after), 0);

	/* The clock has caught up. */
	frozen_millis = start + 2;
	uuid_v7(&after);
	assert_int_equal(millis_of(&after), start + 2);
	assert_int_equal(counter_of(&after), 0);
	frozen_millis = 0;
}

static void
test_forked_child_draws_its_own_bits(void **state)
{
	Uuid parent;
	Uuid child;
	int pipe_fds[2];
	int status;
	pid_t pid;

	uuid_v7(&parent); /* random bits are buffered now */
	frozen_millis = millis_of(&parent) + 10000;
	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
	{
		uuid_v7(&child);
		_exit(write(pipe_fds[1], &child, sizeof(child)) == sizeof(child) ? 0 : 1);
	}
	uuid_v7(&parent);
	frozen_millis = 0;
	assert_int_equal(read(pipe_fds[0], &child, sizeof(child)), sizeof(child));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);

	/* Both gave out the same stamp, so only the random bits tell them apart. */
	assert_memory_equal(parent.bytes, child.bytes, 8);
	assert_memory_not_equal(parent.bytes + 8, child.bytes + 8, 8);
}

static void
test_text_form(void **state)
{
	static const char text[] = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
	static const uint8_t bytes[16] = {0x01, 0x90, 0xA1, 0xB2, 0xC3, 0xD4, 0x7E, 0x5F,
									  0x8A, 0x6B, 0x7C, 0x8D, 0x9E, 0x0F, 0x1A, 0x2B};
	char out[UUID_TEXT_LEN];
	Uuid uuid;

	assert_true(uuid_parse(text, UUID_TEXT_LEN, &uuid));
	assert_memory_equal(uuid.bytes, bytes, 16);
	uuid_format(&uuid, out);
	assert_memory_equal(out, text, UUID_TEXT_LEN);
	assert_true(uuid_parse("0190A1B2-C3D4-7E5F-8A6B-7C8D9E0F1A2B", UUID_TEXT_LEN, &uuid));
	assert_memory_equal(uuid.bytes, bytes, 16);
}

static void
test_text_form_refusals(void **state)
{
	static const char text[] = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
	static const char strangers[] = "-gG/:@`{ \x80\xFF";
	Uuid uuid;

	/* Any character that does not belong at its place */
	for (int at = 0; at < UUID_TEXT_LEN; at++)
	{
		for (size_t i = 0; i < sizeof(strangers); i++)
		{
			char changed[UUID_TEXT_LEN];

			memcpy(changed, text, UUID_TEXT_LEN);
			changed[at] = strangers[i];
			assert_int_equal(uuid_parse(changed, UUID_TEXT_LEN, &uuid), strangers[i] == text[at]);
		}
	}
	for (size_t len = 0; len < UUID_TEXT_LEN; len++)
		assert_false(uuid_parse(text, len, &uuid));
	assert_false(uuid_parse("0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b0", 37, &uuid));
	assert_false(uuid_parse("{0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b}", 38, &uuid));
	assert_false(uuid_parse("0190a1b2c3d47e5f8a6b7c8d9e0f1a2b", 32, &uuid));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_follows_the_clock),
		cmocka_unit_test(test_ascending_in_one_thread),
		cmocka_unit_test(test_ascending_over_threads),
		cmocka_unit_test(test_v94_ascending_when_the_clock_steps_back),
		cmocka_unit_test(test_forked_child_draws_its_own_bits),
		cmocka_unit_test(test_text_form),
		cmocka_unit_test(test_text_form_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
