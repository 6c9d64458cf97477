/*
 * hashindex.h
 *		Finds equal 128-bit hashes among the items of one batch.
 */
#ifndef QUEEN_HASHINDEX_H
#define QUEEN_HASHINDEX_H

#include <stddef.h>
#include <stdint.h>

typedef struct HashIndex
{
	size_t mask;
	uint64_t factor;		/* of the hashes */
	const uint8_t **hashes; /* of the item in the slot */
	uint32_t *slots;		/* item number + 1, 0 when free */
} HashIndex;

/* For up to n items, in that many bytes of memory, zeroed, which is the caller's to free. */
extern size_t hash_index_size(size_t n);
extern void hash_index_init(HashIndex *index, size_t n, void *memory);

/*
 * Adds item "number" with its hash, which must stay where it is.  Returns -1,
 * or the number of the item that was there first with the same hash.
 */
extern int64_t hash_index_add(HashIndex *index, const uint8_t hash[16], uint32_t number);

/* The number of the item with that hash, -1 when there is none. */
extern int64_t hash_index_find(const HashIndex *index, const uint8_t hash[16]);

#endif
