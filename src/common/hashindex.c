/*
 * hashindex.c
 *		Finds equal 128-bit hashes among the items of one batch.
 *
 * Open addressing, at most half full.  Clients choose what is hashed, so the
 * slot depends on a random factor: nobody can make hashes pile up.
 */
#include "hashindex.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

/* Odd; drawn once by each process. */
static uint64_t
random_factor(void)
{
	static _Atomic uint64_t factor;
	uint64_t drawn = atomic_load_explicit(&factor, memory_order_relaxed);

	if (drawn != 0)
		return drawn;
	if (getrandom(&drawn, sizeof(drawn), GRND_NONBLOCK) != sizeof(drawn))
		drawn = (uint64_t) (uintptr_t) &drawn * UINT64_C(0x9E3779B97F4A7C15);
	drawn |= 1;
	atomic_store_explicit(&factor, drawn, memory_order_relaxed);
	return drawn;
}

static size_t
slots_for(size_t n)
{
	size_t size = 8;

	while (size < 2 * n)
		size *= 2;
	return size;
}

size_t
hash_index_size(size_t n)
{
	return slots_for(n) * (sizeof(const uint8_t *) + sizeof(uint32_t));
}

void
hash_index_init(HashIndex *index, size_t n, void *memory)
{
	index->mask = slots_for(n) - 1;
	index->factor = random_factor();
	index->hashes = memory;
	index->slots = (uint32_t *) (index->hashes + slots_for(n));
}

/* The slot of an equal hash, or the free one where it belongs. */
static size_t
find_slot(const HashIndex *index, const uint8_t hash[16])
{
	uint64_t slot;

	memcpy(&slot, hash, sizeof(slot));
	slot = (slot * index->factor) >> 32;
	for (slot &= index->mask; index->slots[slot]; slot = (slot + 1) & index->mask)
		if (memcmp(index->hashes[slot], hash, 16) == 0)
			break;
	return slot;
}

int64_t
hash_index_find(const HashIndex *index, const uint8_t hash[16])
{
	return (int64_t) index->slots[find_slot(index, hash)] - 1;
}

int64_t
hash_index_add(HashIndex *index, const uint8_t hash[16], uint32_t number)
{
	size_t slot = find_slot(index, hash);

	if (index->slots[slot])
		return index->slots[slot] - 1;
	index->slots[slot] = number + 1;
	index->hashes[slot] = hash;
	return -1;
}
