/*
 * duplicates.c
 *		Finds the messages of a segment that the log holds already.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "duplicates.h"
#include "hashindex.h"
#include "protocol.h"
#include "rows.h"
#include "segment_sql.h"

/* Where the original of a frame is. */
typedef struct Original
{
	int64 base_offset; /* -1: nowhere */
	int32 place;	   /* in that segment, counted from 0 */
	pg_uuid_t id;
} Original;

static void
search_row(const HashIndex *incoming, Original *originals, int64 base_offset, Datum stored)
{
	bytea *hashes = DatumGetByteaPP(stored);
	const uint8 *first = (const uint8 *) VARDATA_ANY(hashes);

	for (int32 i = VARSIZE_ANY_EXHDR(hashes) / HASH_SIZE - 1; i >= 0; i--)
	{
		int64_t frame = hash_index_find(incoming, first + (Size) i * HASH_SIZE);

		if (frame >= 0)
		{
			originals[frame].base_offset = base_offset;
			originals[frame].place = i;
		}
	}
	if (hashes != (bytea *) DatumGetPointer(stored))
		pfree(hashes);
}

/* From the end, because stamps ascend with offsets; so the lowest offset is found last. */
static void
search_rows(LogTable *txns, TupleTableSlot *row, const pg_uuid_t *partition_id, int64 first,
			int64 last, TimestampTz since, const HashIndex *incoming, Original *originals)
{
	ScanKeyData keys[3];
	IndexScanDesc scan;

	row_key(&keys[0], txns, TXNS_BY_OFFSET, 1, BTEqualStrategyNumber, UUIDPGetDatum(partition_id));
	row_key(&keys[1], txns, TXNS_BY_OFFSET, 2, BTGreaterEqualStrategyNumber, Int64GetDatum(first));
	row_key(&keys[2], txns, TXNS_BY_OFFSET, 2, BTLessEqualStrategyNumber, Int64GetDatum(last));
	scan = row_scan(txns, TXNS_BY_OFFSET, keys, lengthof(keys));
	while (index_getnext_slot(scan, BackwardScanDirection, row) &&
		   DatumGetTimestampTz(row_value(txns, row, TXNS_CREATED_AT)) >= since)
	{
		CHECK_FOR_INTERRUPTS();
		search_row(incoming, originals, DatumGetInt64(row_value(txns, row, TXNS_BASE_OFFSET)),
				   row_value(txns, row, TXNS_HASHES));
	}
	index_endscan(scan);
}

static int
descending(const void *a, const void *b)
{
	int64 left = *(const int64 *) a;
	int64 right = *(const int64 *) b;

	return (left < right) - (left > right);
}

static void
search_suspects(LogTable *txns, const pg_uuid_t *partition_id, int64 txns_start, TimestampTz since,
				const Suspects *suspects, const HashIndex *incoming, Original *originals)
{
	TupleTableSlot *row = row_slot(txns);

	if (suspects->anywhere)
		search_rows(txns, row, partition_id, txns_start, PG_INT64_MAX, since, incoming, originals);
	else
		qsort(suspects->blocks, suspects->n, sizeof(int64), descending);
	for (int i = 0; i < suspects->n && !suspects->anywhere; i++)
	{
		int64 first = suspects->blocks[i] * DEDUP_BLOCK;

		if (i == 0 || suspects->blocks[i] != suspects->blocks[i - 1])
			search_rows(txns, row, partition_id, Max(first, txns_start), first + DEDUP_BLOCK - 1,
						since, incoming, originals);
	}
	ExecDropSingleTupleTableSlot(row);
}

/* Gives the originals in one segment their ids. */
static void
read_ids(LogTable *segments, TupleTableSlot *row, const pg_uuid_t *partition_id,
		 Original **originals, int n)
{
	ScanKeyData keys[2];
	Datum stored;
	bytea *blob;
	pg_uuid_t *ids;
	int64 frames;

	row_key(&keys[0], segments, SEGMENTS_BY_OFFSET, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(partition_id));
	row_key(&keys[1], segments, SEGMENTS_BY_OFFSET, 2, BTEqualStrategyNumber,
			Int64GetDatum(originals[0]->base_offset));
	if (!row_find(segments, SEGMENTS_BY_OFFSET, keys, lengthof(keys), row))
		return;
	stored = row_value(segments, row, SEGMENTS_BLOB);
	blob = DatumGetByteaPP(stored);
	ids = segment_message_ids(blob, &frames);
	for (int i = 0; i < n; i++)
		if (originals[i]->place < frames)
			originals[i]->id = ids[originals[i]->place];
	if (ids != NULL)
		pfree(ids);
	if (blob != (bytea *) DatumGetPointer(stored))
		pfree(blob);
}

static int
by_segment(const void *a, const void *b)
{
	int64 left = (*(Original *const *) a)->base_offset;
	int64 right = (*(Original *const *) b)->base_offset;

	return (left > right) - (left < right);
}

/* Each segment is read once. */
static void
read_all_ids(LogTable *segments, const pg_uuid_t *partition_id, Original **found, int n)
{
	TupleTableSlot *row = row_slot(segments);

	qsort(found, n, sizeof(*found), by_segment);
	for (int i = 0; i < n;)
	{
		int first = i;

		CHECK_FOR_INTERRUPTS();
		while (i < n && found[i]->base_offset == found[first]->base_offset)
			i++;
		read_ids(segments, row, partition_id, &found[first], i - first);
	}
	ExecDropSingleTupleTableSlot(row);
}

void
duplicates_find(LogTable *txns, LogTable *segments, const pg_uuid_t *partition_id, int64 txns_start,
				TimestampTz since, const Suspects *suspects, const uint8 *hashes, int n,
				Duplicates *result)
{
	Original *originals = palloc0(n * sizeof(Original));
	Original **found = palloc(n * sizeof(Original *));
	HashIndex incoming;

	hash_index_init(&incoming, n, palloc0(hash_index_size(n)));
	for (int i = 0; i < n; i++)
	{
		(void) hash_index_add(&incoming, hashes + (Size) i * HASH_SIZE, i);
		originals[i].base_offset = -1;
	}
	search_suspects(txns, partition_id, txns_start, since, suspects, &incoming, originals);

	result->n = 0;
	result->frames = palloc(n * sizeof(int32));
	for (int i = 0; i < n; i++)
		if (originals[i].base_offset >= 0)
		{
			found[result->n] = &originals[i];
			result->frames[result->n++] = i;
		}
	read_all_ids(segments, partition_id, found, result->n);
	result->ids = palloc(n * sizeof(pg_uuid_t));
	for (int i = 0; i < result->n; i++)
		result->ids[i] = originals[result->frames[i]].id;
}
