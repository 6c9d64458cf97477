/*
 * push_targets.c
 *		Messages that are stored together, by partition, as a call takes them.
 */
#include "push_targets.h"

#include "hash.h"
#include "packer.h"
#include "protocol.h"
#include "worker.h"

#include <stdlib.h>

void
targets_free(Targets *targets)
{
	PushTarget *target = targets->list;

	HASH_CLEAR(hh, targets->by_identity);
	while (target)
	{
		PushTarget *next = target->next;

		free(target->items);
		free(target);
		target = next;
	}
	free(targets->segments);
	memset(targets, 0, sizeof(*targets));
}

/* Room for one more; there is no going on without it. */
static void *
grown(void *list, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return list;
	*cap = *cap ? 2 * *cap : 4;
	list = realloc(list, *cap * size);
	if (list == NULL)
		abort();
	return list;
}

static void
identify(const Uuid *tenant, Span queue, Span partition, uint8_t identity[16])
{
	Buf key = {0};

	buf_append(&key, tenant->bytes, sizeof(tenant->bytes));
	buf_append(&key, queue.ptr, queue.len);
	buf_append_char(&key, '\x1f');
	buf_append(&key, partition.ptr, partition.len);
	if (key.failed)
		abort();
	transaction_hash(key.data, key.len, identity);
	buf_free(&key);
}

static PushTarget *
find_or_create(Targets *targets, const Uuid *tenant, Span queue, Span partition)
{
	uint8_t identity[16];
	PushTarget *target;

	identify(tenant, queue, partition, identity);
	HASH_FIND(hh, targets->by_identity, identity, sizeof(identity), target);
	if (target)
		return target;
	target = calloc(1, sizeof(*target));
	if (target == NULL)
		abort();
	memcpy(target->identity, identity, sizeof(identity));
	target->tenant = *tenant;
	target->queue = queue;
	target->partition = partition;
	HASH_ADD(hh, targets->by_identity, identity, sizeof(target->identity), target);
	if (targets->last)
		targets->last->next = target;
	else
		targets->list = target;
	targets->last = target;
	return target;
}

void
targets_add(Targets *targets, const Uuid *tenant, Span queue, Span partition, PushItem *item)
{
	PushTarget *target = find_or_create(targets, tenant, queue, partition);

	target->items = grown(target->items, target->n, &target->cap, sizeof(*target->items));
	target->items[target->n++] = item;
}

static void
add_segment(Targets *targets, PushTarget *target, size_t first, size_t n, const Packer *packer,
			SegmentColumns *columns)
{
	segment_columns_add(columns, &target->tenant, target->queue, target->partition, n, packer);
	targets->segments = grown(targets->segments, targets->n_segments, &targets->segments_cap,
							  sizeof(*targets->segments));
	targets->segments[targets->n_segments++] = (PushSegment){target, first};
}

bool
targets_pack(Targets *targets, PushTarget *target, size_t count, struct Worker *worker,
			 SegmentColumns *columns)
{
	Packer *packer = worker->packer;
	size_t n;

	target->sent = count;
	for (size_t first = 0; first < count; first += n)
	{
		size_t raw = 0;

		for (n = 0; first + n < count && n < SEGMENT_MAX_FRAMES; n++)
		{
			PushItem *item = target->items[first + n];
			Frame frame;

			if (target->encrypt && !push_item_seal(item, worker->crypt))
				return false;
			frame = push_item_frame(item);
			if (n > 0 && raw + frame_size(&frame) > SEGMENT_MAX_RAW)
				break;
			raw += frame_size(&frame);
		}
		if (!packer_pack(packer, target->items + first, n, raw))
			return false;
		add_segment(targets, target, first, n, packer, columns);
	}
	return true;
}
