/*
 * packer.c
 *		Messages into a segment and its hashes, as queen.log_push takes them.
 */
#include "packer.h"

#include "protocol.h"

#include <stdlib.h>

Packer *
packer_new(int level)
{
	Packer *packer = calloc(1, sizeof(*packer));

	packer->cctx = ZSTD_createCCtx();
	packer->level = level;
	return packer;
}

void
packer_free(Packer *packer)
{
	ZSTD_freeCCtx(packer->cctx);
	buf_free(&packer->raw);
	buf_free(&packer->blob);
	buf_free(&packer->hashes);
	free(packer);
}

bool
packer_pack(Packer *packer, PushItem *const *items, size_t n, size_t raw_len)
{
	uint8_t *dst;
	size_t bound = segment_pack_bound(raw_len);

	buf_reset(&packer->raw);
	buf_reset(&packer->blob);
	buf_reset(&packer->hashes);
	if (!buf_reserve(&packer->raw, raw_len) || !buf_reserve(&packer->blob, bound))
		return false;
	dst = (uint8_t *) packer->raw.data;
	for (size_t i = 0; i < n; i++)
	{
		Frame frame = push_item_frame(items[i]);

		frame_write(dst, &frame);
		dst += frame_size(&frame);
		buf_append(&packer->hashes, items[i]->hash, HASH_SIZE);
	}
	packer->blob.len = segment_pack(packer->cctx, packer->level, packer->raw.data, raw_len,
									packer->blob.data, bound);
	return packer->blob.len > 0 && !packer->hashes.failed;
}

void
segment_columns_begin(SegmentColumns *columns, PgArray *params, int first)
{
	static const Oid types[] = {OID_TEXT, OID_TEXT, OID_INT4, OID_BYTEA, OID_BYTEA};
	PgArray **arrays[] = {&columns->queues, &columns->partitions, &columns->counts,
						  &columns->hashes, &columns->blobs};

	columns->tenants = NULL;
	for (int i = 0; i < 5; i++)
	{
		*arrays[i] = &params[first + i];
		pgarray_begin(*arrays[i], types[i]);
	}
}

void
segment_columns_add(SegmentColumns *columns, const Uuid *tenant, Span queue, Span partition,
					size_t n, const Packer *packer)
{
	if (columns->tenants)
		pgarray_add_uuid(columns->tenants, tenant);
	pgarray_add_span(columns->queues, queue);
	pgarray_add_span(columns->partitions, partition);
	pgarray_add_int(columns->counts, (int32_t) n);
	pgarray_add(columns->hashes, packer->hashes.data, packer->hashes.len);
	pgarray_add(columns->blobs, packer->blob.data, packer->blob.len);
}

void
segment_columns_end(SegmentColumns *columns)
{
	if (columns->tenants)
		pgarray_end(columns->tenants);
	pgarray_end(columns->queues);
	pgarray_end(columns->partitions);
	pgarray_end(columns->counts);
	pgarray_end(columns->hashes);
	pgarray_end(columns->blobs);
}
