/*
 * hashindex.c
 *		Finds equal 128-bit hashes among the items of one batch.
 *
 * Open addressing, at most half full.  The hashes are uniform already, so
 * their first bytes are the slot.
 */
#include "hashindex.h"

#include <stdlib.h>
#include <string.h>

void
hash_index_init(HashIndex *index, size_t n)
{
	size_t size = 8;

	while (size < 2 * n)
		size *= 2;
	index->mask = size - 1;
	index->slots = calloc(size, sizeof(*index->slots));
	index->hashes = calloc(size, sizeof(*index->hashes));
	if (index->slots == NULL || index->hashes == NULL)
		abort();
}

void
hash_index_free(HashIndex *index)
{
	free(index->slots);
	free(index->hashes);
}

int64_t
hash_index_add(HashIndex *index, const uint8_t hash[16], uint32_t number)
{
	uint64_t slot;

	memcpy(&slot, hash, sizeof(slot));
	for (slot &= index->mask; index->slots[slot]; slot = (slot + 1) & index->mask)
		if (memcmp(index->hashes[slot], hash, 16) == 0)
			return index->slots[slot] - 1;
	index->slots[slot] = number + 1;
	index->hashes[slot] = hash;
	return -1;
}
