/*
 * segment.h
 *		Frames, concatenated and compressed as one zstd frame.
 *
 * The caller owns every buffer: this file runs inside PostgreSQL, where
 * memory comes from palloc, as well as in the front end.  The zstd frame
 * carries its content size and a checksum: without the checksum most flipped
 * bits decode to wrong data silently.
 */
#ifndef QUEEN_SEGMENT_H
#define QUEEN_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

/* Largest blob that segment_pack() may produce for "raw_len" bytes. */
extern size_t segment_pack_bound(size_t raw_len);

/* Returns the blob's length, 0 on failure.  "dst" holds segment_pack_bound() bytes. */
extern size_t segment_pack(ZSTD_CCtx *cctx, int level, const void *raw, size_t raw_len, void *dst,
						   size_t dst_cap);

/*
 * Decompressed size as the blob's header states it.  Returns NULL and sets
 * *raw_len, or a constant text that says why the blob is corrupt.
 */
extern const char *segment_raw_size(const void *blob, size_t blob_len, size_t *raw_len);

/* Decompresses into "raw", which holds exactly the size above.  NULL, or why not. */
extern const char *segment_unpack(ZSTD_DCtx *dctx, const void *blob, size_t blob_len, void *raw,
								  size_t raw_len);

/* Walks every frame of a decompressed segment.  NULL when there are exactly "frames". */
extern const char *segment_check_frames(const void *raw, size_t raw_len, int64_t frames);

#endif
