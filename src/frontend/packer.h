/*
 * packer.h
 *		Messages into a segment and its hashes, as queen.log_push takes them.
 *
 * One per thread, with the memory of its last segment.
 */
#ifndef QUEEN_PACKER_H
#define QUEEN_PACKER_H

#include "message.h"
#include "segment.h"

typedef struct Packer
{
	ZSTD_CCtx *cctx;
	int level;
	Buf raw, blob, hashes;
} Packer;

extern Packer *packer_new(int level);
extern void packer_free(Packer *packer);

/*
 * Fills "blob" and "hashes"; "raw_len" is the size of all frames together.
 * False when there is no memory.
 */
extern bool packer_pack(Packer *packer, PushItem *const *items, size_t n, size_t raw_len);

#endif
