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
