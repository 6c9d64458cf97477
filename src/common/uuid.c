/*
 * uuid.c
 *		UUIDs as 16 bytes in text order, and a version 7 generator.
 *
 * The generator's only shared state is one atomic word, so threads never wait
 * for each other.
 */
#include "uuid.h"

#include "hex.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define COUNTER_BITS 12
#define RANDOM_WORDS 32 /* 256 bytes: getrandom() gives that many at once */

/* Milliseconds and counter of the newest UUID. */
static _Atomic uint64_t last_stamp;

/*
 * Random bits that were drawn but not used yet.  A forked child must not use
 * its parent's, so it counts a new generation, which voids them.
 */
typedef struct RandomPool
{
	uint64_t words[RANDOM_WORDS];
	unsigned left;
	unsigned generation;
} RandomPool;

static _Thread_local RandomPool pool;
static atomic_uint generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool fork_noticed; /* false: the handler is missing, so keep no random bits */

static void
after_fork(void)
{
	atomic_fetch_add(&generation, 1);
}

static void
watch_forks(void)
{
	fork_noticed = pthread_atfork(NULL, NULL, after_fork) == 0;
}

static void
pool_fill(void)
{
	ssize_t got;

	pthread_once(&fork_once, watch_forks);
	do
		got = getrandom(pool.words, sizeof(pool.words), 0);
	while (got < 0 && errno == EINTR);

	/* Ids that may repeat would lose messages as duplicates. */
	if (got != (ssize_t) sizeof(pool.words))
		abort();
	pool.left = RANDOM_WORDS;
	pool.generation = atomic_load(&generation);
}

static uint64_t
next_random(void)
{
	if (pool.left == 0 || !fork_noticed || pool.generation != atomic_load(&generation))
		pool_fill();
	return pool.words[--pool.left];
}

/* The clock when it is ahead of the newest stamp, else the next stamp after it. */
static uint64_t
next_stamp(void)
{
	struct timespec now;
	uint64_t clock;
	uint64_t prev = atomic_load(&last_stamp);
	uint64_t next;

	clock_gettime(CLOCK_REALTIME, &now);
	clock = ((uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000) << COUNTER_BITS;
	do
		next = clock > prev ? clock : prev + 1;
	while (!atomic_compare_exchange_weak(&last_stamp, &prev, next));
	return next;
}

static void
put_big_endian(uint8_t *dst, uint64_t value)
{
	for (int i = 7; i >= 0; i--, value >>= 8)
		dst[i] = (uint8_t) value;
}

void
uuid_v7(Uuid *out)
{
	uint64_t stamp = next_stamp();
	uint64_t counter = stamp & ((1 << COUNTER_BITS) - 1);
	uint64_t millis = stamp >> COUNTER_BITS;

	put_big_endian(out->bytes, millis << 16 | UINT64_C(7) << 12 | counter);
	put_big_endian(out->bytes + 8, UINT64_C(2) << 62 | next_random() >> 2);
}

/* Hyphens of the text form stand before these bytes. */
static inline bool
hyphen_before(int byte)
{
	return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void
uuid_format(const Uuid *uuid, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++)
	{
		if (hyphen_before(i))
			*out++ = '-';
		*out++ = digits[uuid->bytes[i] >> 4];
		*out++ = digits[uuid->bytes[i] & 15];
	}
}

bool
uuid_parse(const char *text, size_t len, Uuid *out)
{
	Uuid uuid;

	if (len != UUID_TEXT_LEN)
		return false;
	for (int i = 0; i < 16; i++)
	{
		int byte;

		if (hyphen_before(i) && *text++ != '-')
			return false;
		byte = hex_byte(text);
		if (byte < 0)
			return false;
		uuid.bytes[i] = (uint8_t) byte;
		text += 2;
	}
	*out = uuid;
	return true;
}
