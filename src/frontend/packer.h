/*
 * packer.h
 *		Messages into a segment and its hashes, as queen.log_push takes them.
 *
 * One per thread, with the memory of its last segment.
 */
#ifndef QUEEN_PACKER_H
#define QUEEN_PACKER_H

#include "message.h"
#include "pgbin.h"
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

/* Arguments of a call, in the order of queen.log_push; tenants NULL: the call has one tenant. */
typedef struct SegmentColumns
{
	PgArray *tenants;
	PgArray *queues, *partitions, *counts, *hashes, *blobs;
} SegmentColumns;

/* Begins the arrays from parameter "first" on: queues, partitions, counts, hashes, blobs. */
extern void segment_columns_begin(SegmentColumns *columns, PgArray *params, int first);

/* Adds the segment of "n" messages that was packed last. */
extern void segment_columns_add(SegmentColumns *columns, const Uuid *tenant, Span queue,
								Span partition, size_t n, const Packer *packer);
extern void segment_columns_end(SegmentColumns *columns);

#endif
