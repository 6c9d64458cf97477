/*
 * hashindex.c
 *		Finds equal 128-bit hashes among the items of one batch.
 *
 * Open addressing, at most half full.  The hashes are uniform already, so
 * their first bytes are the slot.
 */
#include "hashindex.h"

#include <string.h>

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
	index->hashes = memory;
	index->slots = (uint32_t *) (index->hashes + slots_for(n));
}

/* The slot of an equal hash, or the free one where it belongs. */
static size_t
find_slot(const HashIndex *index, const uint8_t hash[16])
{
	uint64_t slot;

	memcpy(&slot, hash, sizeof(slot));
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
