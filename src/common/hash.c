/*
 * hash.c
 *		The identity of a transaction id.
 */
#include "hash.h"

#include <string.h>
#include <xxhash.h>

void
transaction_hash(const void *id, size_t len, uint8_t out[16])
{
	XXH128_canonical_t canonical; /* big-endian by definition */

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(id, len));
	memcpy(out, canonical.digest, sizeof(canonical.digest));
}
