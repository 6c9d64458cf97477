/*
 * segment.c
 *		Frames, concatenated and compressed as one zstd frame.
 *
 * Blobs are untrusted input: no size is believed before it was bounded.
 */
#include "segment.h"

#include "frame.h"
#include "protocol.h"

/*
 * Below this size nearly all of the time goes into the tables of an entropy
 * coder, which gain next to nothing: fast levels do without.
 */
#define SMALL_RAW 512
#define SMALL_LEVEL (-1)

static const uint8_t zstd_magic[4] = {0x28, 0xB5, 0x2F, 0xFD};

size_t
segment_pack_bound(size_t raw_len)
{
	return ZSTD_compressBound(raw_len);
}

size_t
segment_pack(ZSTD_CCtx *cctx, int level, const void *raw, size_t raw_len, void *dst, size_t dst_cap)
{
	size_t len;

	if (raw_len < SMALL_RAW)
		level = SMALL_LEVEL;
	if (ZSTD_isError(ZSTD_CCtx_reset(cctx, ZSTD_reset_session_and_parameters)) ||
		ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, level)) ||
		ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, 1)) ||
		ZSTD_isError(ZSTD_CCtx_setParameter(cctx, ZSTD_c_checksumFlag, 1)))
		return 0;
	len = ZSTD_compress2(cctx, dst, dst_cap, raw, raw_len);
	return ZSTD_isError(len) ? 0 : len;
}

const char *
segment_raw_size(const void *blob, size_t blob_len, size_t *raw_len)
{
	unsigned long long size;
	size_t used;

	/* The library would also take skippable frames and its old formats. */
	if (blob_len < sizeof(zstd_magic) || memcmp(blob, zstd_magic, sizeof(zstd_magic)) != 0)
		return "not a zstd frame";

	size = ZSTD_getFrameContentSize(blob, blob_len);
	if (size == ZSTD_CONTENTSIZE_ERROR)
		return "the zstd header is malformed";
	if (size == ZSTD_CONTENTSIZE_UNKNOWN)
		return "the zstd header does not state the size";
	if (size > SEGMENT_RAW_LIMIT)
		return "the stated size is above the limit";

	used = ZSTD_findFrameCompressedSize(blob, blob_len);
	if (ZSTD_isError(used))
		return "the zstd frame is truncated or malformed";
	if (used != blob_len)
		return "bytes are left over after the zstd frame";

	*raw_len = (size_t) size;
	return NULL;
}

const char *
segment_unpack(ZSTD_DCtx *dctx, const void *blob, size_t blob_len, void *raw, size_t raw_len)
{
	size_t len = ZSTD_decompressDCtx(dctx, raw, raw_len, blob, blob_len);

	if (ZSTD_isError(len))
		return ZSTD_getErrorName(len);
	if (len != raw_len)
		return "the decompressed size differs from the stated one";
	return NULL;
}

const char *
segment_check_frames(const void *raw, size_t raw_len, int64_t frames)
{
	FrameReader reader;
	Frame frame;
	int64_t count = 0;

	frame_reader_init(&reader, raw, raw_len);
	while (frame_next(&reader, &frame))
		count++;
	if (reader.error != NULL)
		return reader.error;
	if (count != frames)
		return "the number of frames differs from the offset range";
	return NULL;
}
