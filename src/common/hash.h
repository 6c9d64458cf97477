/*
 * hash.h
 *		The identity of a transaction id: xxh3_128, seed 0, big-endian.
 */
#ifndef QUEEN_HASH_H
#define QUEEN_HASH_H

#include <stddef.h>
#include <stdint.h>

extern void transaction_hash(const void *id, size_t len, uint8_t out[16]);

#endif
