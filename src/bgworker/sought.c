/*
 * sought.c
 *		Finds messages of a partition by their transaction ids.
 *
 * The sidecar holds the hashes of a segment in one row: its 16-byte strides
 * are compared with the hashes that are looked for, row after row, until all are
 * found.  Those are sorted, not put into a hash table: clients choose the ids,
 * and could choose many that collide.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "protocol.h"
#include "segment_sql.h"
#include "sought.h"

static int
compare_hashes(const uint64 *a, const uint64 *b)
{
	if (a[0] != b[0])
		return a[0] < b[0] ? -1 : 1;
	if (a[1] != b[1])
		return a[1] < b[1] ? -1 : 1;
	return 0;
}

static int
compare_sought(const void *a, const void *b)
{
	return compare_hashes(((const Sought *) a)->hash, ((const Sought *) b)->hash);
}

Search *
search_open(void)
{
	Search *search = palloc0(sizeof(Search));

	search->txns = log_table_open(TXNS, AccessShareLock);
	search->segments = log_table_open(SEGMENTS, AccessShareLock);
	search->txn = row_slot(search->txns);
	search->segment = row_slot(search->segments);
	return search;
}

void
search_close(Search *search)
{
	ExecDropSingleTupleTableSlot(search->txn);
	ExecDropSingleTupleTableSlot(search->segment);
	log_table_close(search->txns);
	log_table_close(search->segments);
	pfree(search);
}

void
search_begin(Search *search, const pg_uuid_t *partition_id, Sought *sought, int n)
{
	search->partition_id = *partition_id;
	search->sought = sought;
	search->n = n;
	search->missing = n;
	qsort(sought, n, sizeof(Sought), compare_sought);
}

/* The first that is looked for with this hash or a greater one. */
static Sought *
lower_bound(const Search *search, const uint64 *hash)
{
	Sought *low = search->sought;
	int n = search->n;

	while (n > 0)
	{
		int half = n / 2;

		if (compare_hashes(low[half].hash, hash) < 0)
		{
			low += half + 1;
			n -= half + 1;
		}
		else
			n = half;
	}
	return low;
}

static void
match(Search *search, const uint8 *hashes, int64 count, int64 base, int64 after, int64 upto)
{
	const Sought *end = search->sought + search->n;
	int64 last = Min(count - 1, upto - base);

	for (int64 i = Max(0, after + 1 - base); i <= last && search->missing > 0; i++)
	{
		uint64 hash[2];

		memcpy(hash, hashes + i * HASH_SIZE, HASH_SIZE);
		for (Sought *s = lower_bound(search, hash); s < end && compare_hashes(s->hash, hash) == 0;
			 s++)
			if (s->offset < 0)
			{
				s->offset = base + i;
				search->missing--;
			}
	}
}

/* A scan of the partition's rows whose base compares to "base" by the strategy. */
static IndexScanDesc
scan_bases(const Search *search, LogTable *table, LogIndexId index, StrategyNumber strategy,
		   int64 base)
{
	ScanKeyData keys[2];

	row_key(&keys[0], table, index, 1, BTEqualStrategyNumber, UUIDPGetDatum(&search->partition_id));
	row_key(&keys[1], table, index, 2, strategy, Int64GetDatum(base));
	return row_scan(table, index, keys, 2);
}

/* A scan upwards from the row that covers "offset", or may. */
static IndexScanDesc
scan_from(const Search *search, LogTable *table, LogIndexId index, int base_column, int64 offset,
		  TupleTableSlot *row)
{
	IndexScanDesc scan = scan_bases(search, table, index, BTLessEqualStrategyNumber, offset);
	int64 base = 0;

	if (index_getnext_slot(scan, BackwardScanDirection, row))
		base = DatumGetInt64(row_value(table, row, base_column));
	index_endscan(scan);
	return scan_bases(search, table, index, BTGreaterEqualStrategyNumber, base);
}

static void
match_txn(Search *search, int64 base, int64 after, int64 upto)
{
	Datum value = row_value(search->txns, search->txn, TXNS_HASHES);
	bytea *hashes = DatumGetByteaPP(value);

	match(search, (const uint8 *) VARDATA_ANY(hashes), VARSIZE_ANY_EXHDR(hashes) / HASH_SIZE, base,
		  after, upto);
	if ((Pointer) hashes != DatumGetPointer(value))
		pfree(hashes);
}

static void
match_segment(Search *search, int64 base, int64 after, int64 upto)
{
	Datum value = row_value(search->segments, search->segment, SEGMENTS_BLOB);
	int64 end = DatumGetInt64(row_value(search->segments, search->segment, SEGMENTS_END_OFFSET));
	bytea *blob;
	uint8 *hashes;

	if (end <= after)
		return;
	blob = DatumGetByteaPP(value);
	hashes = segment_hashes(blob, end - base + 1);
	if (hashes != NULL)
	{
		match(search, hashes, end - base + 1, base, after, upto);
		pfree(hashes);
	}
	if ((Pointer) blob != DatumGetPointer(value))
		pfree(blob);
}

void
search_segments(Search *search, int64 after, int64 upto)
{
	IndexScanDesc scan = scan_from(search, search->segments, SEGMENTS_BY_OFFSET,
								   SEGMENTS_BASE_OFFSET, after + 1, search->segment);

	while (search->missing > 0 && index_getnext_slot(scan, ForwardScanDirection, search->segment))
	{
		int64 base =
			DatumGetInt64(row_value(search->segments, search->segment, SEGMENTS_BASE_OFFSET));

		CHECK_FOR_INTERRUPTS();
		if (base > upto)
			break;
		match_segment(search, base, after, upto);
	}
	index_endscan(scan);
}

void
search_sidecar(Search *search, int64 after, int64 upto)
{
	IndexScanDesc scan =
		scan_from(search, search->txns, TXNS_BY_OFFSET, TXNS_BASE_OFFSET, after + 1, search->txn);

	while (search->missing > 0 && index_getnext_slot(scan, ForwardScanDirection, search->txn))
	{
		int64 base = DatumGetInt64(row_value(search->txns, search->txn, TXNS_BASE_OFFSET));

		CHECK_FOR_INTERRUPTS();
		if (base > upto)
			break;
		match_txn(search, base, after, upto);
	}
	index_endscan(scan);
}

void
search_sidecar_back(Search *search, int64 upto)
{
	IndexScanDesc scan =
		scan_bases(search, search->txns, TXNS_BY_OFFSET, BTLessEqualStrategyNumber, upto);

	while (search->missing > 0 && index_getnext_slot(scan, BackwardScanDirection, search->txn))
	{
		CHECK_FOR_INTERRUPTS();
		match_txn(search, DatumGetInt64(row_value(search->txns, search->txn, TXNS_BASE_OFFSET)), -1,
				  upto);
	}
	index_endscan(scan);
}
