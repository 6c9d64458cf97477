/*
 * test_segment.c
 *		Segments: packing, and the refusal of every blob that is not sound.
 */
#include "unit.h"

#include "fail_alloc.h"
#include "protocol.h"
#include "segment.h"
#include "vectors.h"

#define LEVEL 3

/* A zstd frame that carries no content, by definition of the format */
static const uint8_t skippable_frame[] = {0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};

typedef struct Bytes
{
	uint8_t *data;
	size_t len;
} Bytes;

/* A segment of "frames" frames that compresses like real ones. */
static Bytes
raw_segment(int frames)
{
	Bytes raw = {malloc((size_t) frames * 128), 0};

	assert_non_null(raw.data);
	for (int i = 0; i < frames; i++)
	{
		char id[16];
		char payload[64];
		Frame frame = VECTOR_FULL;

		snprintf(id, sizeof(id), "id-%d", i * i);
		snprintf(payload, sizeof(payload), "{\"number\":%d,\"text\":\"%x\"}", i, i * 2654435761u);
		frame.transaction_id = span_of(id);
		frame.payload = span_of(payload);
		frame_write(raw.data + raw.len, &frame);
		raw.len += frame_size(&frame);
	}
	return raw;
}

static Bytes
pack(const void *raw, size_t raw_len)
{
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	size_t cap = segment_pack_bound(raw_len);
	Bytes blob = {malloc(cap), 0};

	assert_non_null(blob.data);
	blob.len = segment_pack(cctx, LEVEL, raw, raw_len, blob.data, cap);
	assert_true(blob.len > 0);
	ZSTD_freeCCtx(cctx);
	return blob;
}

/*
 * Decodes a blob as both programs do: size, memory of just that size, content.
 * Returns what is wrong, or NULL and the content.
 */
static const char *
unpack(const void *blob, size_t blob_len, Bytes *raw)
{
	void *copy = exact_copy(blob, blob_len);
	const char *error;

	*raw = (Bytes){0};
	error = segment_raw_size(copy, blob_len, &raw->len);
	if (error == NULL)
	{
		ZSTD_DCtx *dctx = ZSTD_createDCtx();

		raw->data = malloc(raw->len > 0 ? raw->len : 1);
		assert_non_null(raw->data);
		error = segment_unpack(dctx, copy, blob_len, raw->data, raw->len);
		ZSTD_freeDCtx(dctx);
	}
	free(copy);
	return error;
}

static void
assert_refused(const void *blob, size_t blob_len)
{
	Bytes raw;

	assert_non_null(unpack(blob, blob_len, &raw));
	free(raw.data);
}

static void
assert_round_trip(const void *raw, size_t raw_len)
{
	Bytes blob = pack(raw, raw_len);
	Bytes back;

	assert_null(unpack(blob.data, blob.len, &back));
	assert_int_equal(back.len, raw_len);
	assert_memory_equal(back.data, raw, raw_len);
	free(blob.data);
	free(back.data);
}

static void
test_v03_vectors_round_trip(void **state)
{
	uint8_t raw[sizeof(vector_plain) + sizeof(vector_full)];

	memcpy(raw, vector_plain, sizeof(vector_plain));
	memcpy(raw + sizeof(vector_plain), vector_full, sizeof(vector_full));
	assert_round_trip(raw, sizeof(raw));
	assert_null(segment_check_frames(raw, sizeof(raw), 2));
}

static void
test_sizes_round_trip(void **state)
{
	static const int frames[] = {1, 2, 50, 1000, 10000};

	for (size_t i = 0; i < lengthof(frames); i++)
	{
		Bytes raw = raw_segment(frames[i]);

		assert_round_trip(raw.data, raw.len);
		assert_null(segment_check_frames(raw.data, raw.len, frames[i]));
		free(raw.data);
	}
}

static void
test_random_bytes_round_trip(void **state)
{
	uint8_t raw[5000];
	uint32_t seed = 1;

	/* They do not compress: the blob is longer than its content. */
	for (size_t i = 0; i < sizeof(raw); i++)
	{
		seed = seed * 1664525 + 1013904223;
		raw[i] = (uint8_t) (seed >> 24);
	}
	assert_round_trip(raw, sizeof(raw));
}

static void
test_contexts_are_reusable(void **state)
{
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	ZSTD_DCtx *dctx = ZSTD_createDCtx();

	for (int frames = 1; frames < 40; frames++)
	{
		Bytes raw = raw_segment(frames);
		uint8_t blob[8192];
		uint8_t back[8192];
		size_t raw_len;
		size_t len;

		/* A use that fails must not spoil the next one. */
		assert_int_equal(segment_pack(cctx, LEVEL, raw.data, raw.len, blob, 5), 0);
		assert_non_null(segment_unpack(dctx, raw.data, raw.len, back, sizeof(back)));

		len = segment_pack(cctx, LEVEL, raw.data, raw.len, blob, sizeof(blob));
		assert_true(len > 0);
		assert_null(segment_raw_size(blob, len, &raw_len));
		assert_int_equal(raw_len, raw.len);
		assert_null(segment_unpack(dctx, blob, len, back, raw_len));
		assert_memory_equal(back, raw.data, raw_len);
		assert_non_null(segment_unpack(dctx, blob, len, back, raw_len - 1));
		assert_non_null(segment_unpack(dctx, blob, len, back, raw_len + 1));
		free(raw.data);
	}
	ZSTD_freeCCtx(cctx);
	ZSTD_freeDCtx(dctx);
}

static void
test_wrong_count_is_refused(void **state)
{
	Bytes raw = raw_segment(3);

	assert_null(segment_check_frames(raw.data, raw.len, 3));
	assert_non_null(segment_check_frames(raw.data, raw.len, 2));
	assert_non_null(segment_check_frames(raw.data, raw.len, 4));
	assert_non_null(segment_check_frames(raw.data, raw.len, 0));
	assert_non_null(segment_check_frames(raw.data, raw.len, -1));
	assert_non_null(segment_check_frames(raw.data, raw.len, INT64_MAX));
	assert_non_null(segment_check_frames(raw.data, raw.len - 1, 3));
	assert_null(segment_check_frames(raw.data, 0, 0));
	assert_non_null(segment_check_frames(raw.data, 0, 1));
	free(raw.data);
}

/*
 * Every flip is refused, but for the few bits that mean nothing to the format
 * (reserved ones, the window size, table entries that no code uses): with
 * those the content must be what it was.
 */
static void
assert_every_flip_is_safe(int frames)
{
	Bytes raw = raw_segment(frames);
	Bytes blob = pack(raw.data, raw.len);
	size_t refused = 0;

	for (size_t bit = 0; bit < blob.len * 8; bit++)
	{
		uint8_t mask = (uint8_t) (1u << bit % 8);
		Bytes back;

		blob.data[bit / 8] ^= mask;
		if (unpack(blob.data, blob.len, &back) != NULL)
			refused++;
		else
		{
			assert_int_equal(back.len, raw.len);
			assert_memory_equal(back.data, raw.data, raw.len);
		}
		free(back.data);
		blob.data[bit / 8] ^= mask;
	}
	assert_true(refused > blob.len * 8 * 95 / 100);
	free(raw.data);
	free(blob.data);
}

static void
test_v93_no_flipped_bit_changes_the_content(void **state)
{
	assert_every_flip_is_safe(1);
	assert_every_flip_is_safe(2);
	assert_every_flip_is_safe(60);
	assert_every_flip_is_safe(300);
}

static void
test_v93_every_truncation_is_refused(void **state)
{
	Bytes raw = raw_segment(60);
	Bytes blob = pack(raw.data, raw.len);

	for (size_t len = 0; len < blob.len; len++)
		assert_refused(blob.data, len);
	free(raw.data);
	free(blob.data);
}

static void
assert_refused_before(const Bytes *blob, const void *trailer, size_t trailer_len)
{
	uint8_t *bytes = malloc(blob->len + trailer_len);

	assert_non_null(bytes);
	memcpy(bytes, blob->data, blob->len);
	memcpy(bytes + blob->len, trailer, trailer_len);
	assert_refused(bytes, blob->len + trailer_len);
	free(bytes);
}

static void
test_v93_trailing_bytes_are_refused(void **state)
{
	Bytes raw = raw_segment(2);
	Bytes blob = pack(raw.data, raw.len);
	Bytes empty = pack("", 0);

	assert_refused_before(&blob, "", 1);
	assert_refused_before(&blob, blob.data, blob.len);

	/* The library itself would read past frames without content. */
	assert_refused_before(&blob, empty.data, empty.len);
	assert_refused_before(&blob, skippable_frame, sizeof(skippable_frame));
	free(raw.data);
	free(blob.data);
	free(empty.data);
}

static void
test_v93_other_formats_are_refused(void **state)
{
	static const uint8_t version_0_7[] = {0x27, 0xB5, 0x2F, 0xFD, 0x20, 0, 0xC0, 0, 0};
	static const uint8_t gzip[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3,
								   3,	 0,	   0, 0, 0, 0, 0, 0, 0, 0};

	assert_refused(skippable_frame, sizeof(skippable_frame));
	assert_refused(version_0_7, sizeof(version_0_7));
	assert_refused(gzip, sizeof(gzip));
	assert_refused(vector_plain, sizeof(vector_plain));
	assert_refused("", 0);
}

static void
test_v93_unknown_size_is_refused(void **state)
{
	Bytes raw = raw_segment(2);
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	uint8_t blob[1024];
	size_t len;

	ZSTD_CCtx_setParameter(cctx, ZSTD_c_contentSizeFlag, 0);
	len = ZSTD_compress2(cctx, blob, sizeof(blob), raw.data, raw.len);
	assert_false(ZSTD_isError(len));
	assert_refused(blob, len);
	ZSTD_freeCCtx(cctx);
	free(raw.data);
}

static void
test_checksum_is_optional_for_the_reader(void **state)
{
	Bytes raw = raw_segment(2);
	Bytes back;
	uint8_t blob[1024];
	size_t len = ZSTD_compress(blob, sizeof(blob), raw.data, raw.len, LEVEL);

	/* Another packer's work is readable; ours always carries one. */
	assert_false(ZSTD_isError(len));
	assert_int_equal(blob[4] & 4, 0);
	assert_null(unpack(blob, len, &back));
	assert_int_equal(back.len, raw.len);
	assert_memory_equal(back.data, raw.data, raw.len);
	free(back.data);

	back = pack(raw.data, raw.len);
	assert_int_equal(back.data[4] & 4, 4);
	free(back.data);
	free(raw.data);
}

/*
 * A frame made by hand: header with an 8-byte content size, then one block
 * that repeats a zero byte "repeat" times.
 */
static size_t
bomb(uint8_t *blob, uint64_t stated, uint32_t repeat)
{
	static const uint8_t header[] = {0x28, 0xB5, 0x2F, 0xFD, 0xE0};
	uint32_t block = repeat << 3 | 1 << 1 | 1; /* size, run-length, last */
	size_t len = sizeof(header);

	memcpy(blob, header, len);
	for (int i = 0; i < 8; i++)
		blob[len++] = (uint8_t) (stated >> 8 * i);
	for (int i = 0; i < 3; i++)
		blob[len++] = (uint8_t) (block >> 8 * i);
	blob[len++] = 0;
	return len;
}

static void
test_v93_bombs_are_refused(void **state)
{
	uint8_t blob[32];
	size_t raw_len;
	size_t len;
	Bytes raw;

	/* The hand-made frame is sound when its size is true. */
	len = bomb(blob, 1000, 1000);
	assert_null(unpack(blob, len, &raw));
	assert_int_equal(raw.len, 1000);
	free(raw.data);

	/* States little and yields much, and the reverse */
	assert_refused(blob, bomb(blob, 999, 1000));
	assert_refused(blob, bomb(blob, 1, 128 * 1024));
	assert_refused(blob, bomb(blob, 1001, 1000));
	assert_refused(blob, bomb(blob, SEGMENT_RAW_LIMIT, 1000));

	/* States more than any segment has: refused before memory is asked for */
	assert_null(segment_raw_size(blob, bomb(blob, SEGMENT_RAW_LIMIT, 1000), &raw_len));
	assert_int_equal(raw_len, SEGMENT_RAW_LIMIT);
	assert_non_null(segment_raw_size(blob, bomb(blob, SEGMENT_RAW_LIMIT + 1, 1000), &raw_len));
	assert_non_null(segment_raw_size(blob, bomb(blob, UINT64_C(10) << 30, 1000), &raw_len));
	assert_non_null(segment_raw_size(blob, bomb(blob, UINT64_MAX, 1000), &raw_len));
	assert_non_null(segment_raw_size(blob, bomb(blob, UINT64_MAX - 1, 1000), &raw_len));
}

/* Packs and unpacks with contexts of its own; false when something could not be had. */
static bool
pack_and_unpack(const Bytes *raw, Bytes *back)
{
	ZSTD_CCtx *cctx = ZSTD_createCCtx();
	ZSTD_DCtx *dctx = ZSTD_createDCtx();
	uint8_t blob[4096];
	size_t len = 0;
	bool ok = false;

	if (cctx != NULL && dctx != NULL)
		len = segment_pack(cctx, LEVEL, raw->data, raw->len, blob, sizeof(blob));
	if (len > 0)
		ok = segment_raw_size(blob, len, &back->len) == NULL &&
			 segment_unpack(dctx, blob, len, back->data, back->len) == NULL;
	ZSTD_freeCCtx(cctx);
	ZSTD_freeDCtx(dctx);
	return ok;
}

static void
test_every_allocation_fails_once(void **state)
{
	Bytes raw = raw_segment(20);
	uint8_t memory[4096] = {0};
	bool failed = true;
	int runs = 0;

	for (long n = 1; failed; n++, runs++)
	{
		Bytes back = {memory, 0};
		bool ok;

		fail_alloc_at(n);
		ok = pack_and_unpack(&raw, &back);
		failed = fail_alloc_end();
		assert_int_equal(ok, !failed);
		if (ok)
		{
			assert_int_equal(back.len, raw.len);
			assert_memory_equal(back.data, raw.data, raw.len);
		}
	}
	assert_true(runs > 2);
	free(raw.data);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v03_vectors_round_trip),
		cmocka_unit_test(test_sizes_round_trip),
		cmocka_unit_test(test_random_bytes_round_trip),
		cmocka_unit_test(test_contexts_are_reusable),
		cmocka_unit_test(test_wrong_count_is_refused),
		cmocka_unit_test(test_v93_no_flipped_bit_changes_the_content),
		cmocka_unit_test(test_v93_every_truncation_is_refused),
		cmocka_unit_test(test_v93_trailing_bytes_are_refused),
		cmocka_unit_test(test_v93_other_formats_are_refused),
		cmocka_unit_test(test_v93_unknown_size_is_refused),
		cmocka_unit_test(test_checksum_is_optional_for_the_reader),
		cmocka_unit_test(test_v93_bombs_are_refused),
		cmocka_unit_test(test_every_allocation_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
