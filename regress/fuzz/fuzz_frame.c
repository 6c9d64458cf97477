/*
 * fuzz_frame.c
 *		Frames and segments on any bytes.
 *
 * Invariants: a frame that was read writes back to its bytes; a blob that
 * unpacks packs and unpacks to the same content; any bytes survive a round trip.
 */
#include "frame.h"
#include "protocol.h"
#include "require.h"
#include "segment.h"

#define KNOWN_FLAGS (FRAME_TRACE | FRAME_PRODUCER | FRAME_ENCRYPTED)

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ZSTD_CCtx *cctx;
static ZSTD_DCtx *dctx;

static void *
allocate(size_t size)
{
	void *memory = malloc(size > 0 ? size : 1);

	require(memory != NULL);
	return memory;
}

/* The bytes from "start" to "end" were read as "frame". */
static void
check_frame(const uint8_t *start, const uint8_t *end, const Frame *frame)
{
	size_t size = (size_t) (end - start);
	uint8_t *bytes;

	require(frame_size(frame) == size);
	require((const uint8_t *) frame->payload.ptr + frame->payload.len == end);
	bytes = allocate(size);
	frame_write(bytes, frame);
	require(bytes[4] == (frame->flags & KNOWN_FLAGS));
	bytes[4] = frame->flags;
	require(memcmp(bytes, start, size) == 0);
	free(bytes);
}

static void
check_frames(const void *raw, size_t len)
{
	FrameReader reader;
	Frame frame;
	const uint8_t *start = raw;
	int64_t count = 0;

	frame_reader_init(&reader, raw, len);
	while (frame_next(&reader, &frame))
	{
		check_frame(start, reader.pos, &frame);
		start = reader.pos;
		count++;
	}
	require(segment_check_frames(raw, len, count) == reader.error);
	require(segment_check_frames(raw, len, count + 1) != NULL);
}

static void
check_round_trip(const void *raw, size_t len)
{
	size_t cap = segment_pack_bound(len);
	uint8_t *blob = allocate(cap);
	uint8_t *back = allocate(len);
	size_t blob_len = segment_pack(cctx, 3, raw, len, blob, cap);
	size_t back_len;

	require(blob_len > 0);
	require(segment_raw_size(blob, blob_len, &back_len) == NULL);
	require(back_len == len);
	require(segment_unpack(dctx, blob, blob_len, back, back_len) == NULL);
	require(memcmp(back, raw, len) == 0);
	free(blob);
	free(back);
}

static void
check_blob(const void *blob, size_t blob_len)
{
	size_t len;
	uint8_t *raw;

	if (segment_raw_size(blob, blob_len, &len) != NULL)
		return;
	require(len <= SEGMENT_RAW_LIMIT);
	raw = allocate(len);
	if (segment_unpack(dctx, blob, blob_len, raw, len) == NULL)
	{
		check_frames(raw, len);
		check_round_trip(raw, len);
	}
	free(raw);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (cctx == NULL)
	{
		cctx = ZSTD_createCCtx();
		dctx = ZSTD_createDCtx();
		require(cctx != NULL && dctx != NULL);
	}
	check_frames(data, size);
	check_blob(data, size);
	check_round_trip(data, size);
	return 0;
}
