/*
 * dedup_window.c
 *		What a backend remembers of the deduplication windows it pushed into.
 *
 * A push has to know whether any of its hashes lies in the sidecar rows of
 * the last hour, say.  Reading them all for every push would make it cost
 * what the window holds.  So each backend keeps, per partition, a set of the
 * hashes that it has read, and reads only the rows that are newer.
 *
 * A member of the set is 40 bits of a hash, and 24 bits of the number of the
 * block that the hash's row belongs to.  The set may hold too much: rows that
 * have left the window since, and 40 bits stand for 128.  A hash that is
 * found therefore only means that those blocks of the sidecar must be searched.
 * It never holds too little, which rests on:
 *
 *	- the caller holds the partition row, and its snapshot is younger than
 *	  that lock; so every row up to last_offset is visible, and no other
 *	  backend adds one meanwhile;
 *	- the stamps of a partition ascend with its offsets;
 *	- rows of a transaction that aborts are forgotten: their offsets will be
 *	  given out again, with other hashes.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "common/pg_prng.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "dedup_window.h"
#include "protocol.h"
#include "rows.h"

#define MIN_SLOTS 16
#define MIN_REBUILD 65536

/* The part of a member that stands for the block. */
#define BLOCK_BITS 24
#define BLOCK_MASK ((UINT64CONST(1) << BLOCK_BITS) - 1)
#define ANYWHERE BLOCK_MASK /* in more than MAX_BLOCKS blocks */
#define MAX_BLOCKS 8

typedef struct DedupWindow
{
	pg_uuid_t partition_id;	  /* hash key */
	int64 verified;			  /* every row up to this offset was read, ... */
	TimestampTz covered_from; /* ... unless it is older than this */
	uint64 *slots;			  /* members; open addressing, 0 is a free slot */
	uint64 nslots;			  /* a power of two */
	uint64 count;
	uint64 rebuild_at; /* count at which to start afresh, without the rows that expired */
	bool touched;	   /* used in the current transaction */
	dlist_node node;   /* in "recent" */
} DedupWindow;

static int dedup_memory; /* GUC, kB */

static MemoryContext window_context;
static HTAB *windows;	  /* by partition id; NULL before the first use */
static dlist_head recent; /* last used first, so the touched ones come first */
static Size used_memory;  /* of all windows */
static Oid source_relid;  /* the log_txns that was read: another one after DROP EXTENSION */
static uint64 multiplier; /* random, so that no client can choose ids that pile up */

static Size
window_size(uint64 nslots)
{
	return sizeof(DedupWindow) + nslots * sizeof(uint64);
}

static uint64 *
slots_alloc(uint64 nslots)
{
	return MemoryContextAllocExtended(window_context, nslots * sizeof(uint64),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

/* The part of a member that stands for the hash; never 0. */
static uint64
member_hash(const uint8 *hash)
{
	uint64 member;

	memcpy(&member, hash, sizeof(member));
	member &= ~BLOCK_MASK;
	return member != 0 ? member : BLOCK_MASK + 1;
}

static uint64
member_block(int64 block)
{
	return (uint64) block % ANYWHERE;
}

/* Where the search for members of that hash begins. */
static uint64
slot_home(uint64 nslots, uint64 hash)
{
	return ((hash >> BLOCK_BITS) * multiplier >> 32) & (nslots - 1);
}

/*
 * The slot of a member with that hash and block, or the free one where it
 * belongs.  A hash that stands in many rows, as while the window is switched
 * off, would make for ever longer searches: *block becomes ANYWHERE.
 */
static uint64 *
slot_find(uint64 *slots, uint64 nslots, uint64 hash, uint64 *block)
{
	uint64 i = slot_home(nslots, hash);
	int same = 0;

	for (; slots[i] != 0 && slots[i] != (hash | *block); i = (i + 1) & (nslots - 1))
		if ((slots[i] & ~BLOCK_MASK) == hash && ++same == MAX_BLOCKS)
			*block = ANYWHERE;
	return &slots[i];
}

static void
window_forget(DedupWindow *window)
{
	used_memory -= window_size(window->nslots);
	dlist_delete(&window->node);
	pfree(window->slots);
	hash_search(windows, &window->partition_id, HASH_REMOVE, NULL);
}

/* Notes that the current transaction uses it. */
static void
window_touch(DedupWindow *window)
{
	window->touched = true;
	dlist_move_head(&recent, &window->node);
}

/* Makes room by forgetting what was not used for longest; not "keep", though. */
static bool
make_room(Size size, DedupWindow *keep)
{
	while (used_memory + size > (Size) dedup_memory * 1024 && !dlist_is_empty(&recent))
	{
		DedupWindow *last = dlist_tail_element(DedupWindow, node, &recent);

		if (last == keep)
			return false;
		window_forget(last);
	}
	return true;
}

static bool
window_grow(DedupWindow *window)
{
	uint64 nslots = window->nslots * 2;
	uint64 *slots;

	if (!make_room(nslots * sizeof(uint64), window))
		return false;
	slots = slots_alloc(nslots);
	for (uint64 i = 0; i < window->nslots; i++)
		if (window->slots[i] != 0)
		{
			uint64 hash = window->slots[i] & ~BLOCK_MASK;
			uint64 block = window->slots[i] & BLOCK_MASK;
			uint64 *slot = slot_find(slots, nslots, hash, &block);

			*slot = hash | block;
		}
	pfree(window->slots);
	used_memory += window_size(nslots) - window_size(window->nslots);
	window->slots = slots;
	window->nslots = nslots;
	return true;
}

/* Adds the hashes of one row. */
static bool
window_add(DedupWindow *window, int64 base_offset, const uint8 *hashes, Size n)
{
	for (Size i = 0; i < n; i++)
	{
		uint64 hash = member_hash(hashes + i * HASH_SIZE);
		uint64 block = member_block(base_offset / DEDUP_BLOCK);
		uint64 *slot;

		if (window->count >= window->nslots / 4 * 3 && !window_grow(window))
			return false;
		slot = slot_find(window->slots, window->nslots, hash, &block);
		if (*slot == 0)
		{
			*slot = hash | block;
			window->count++;
		}
	}
	return true;
}

/* Reads the rows from offset "start" on that are not older than "since".  False: no room. */
static bool
window_read(DedupWindow *window, LogTable *txns, int64 start, TimestampTz since)
{
	TupleTableSlot *row = row_slot(txns);
	ScanKeyData keys[2];
	IndexScanDesc scan;
	bool fits = true;

	row_key(&keys[0], txns, TXNS_BY_OFFSET, 1, BTEqualStrategyNumber,
			UUIDPGetDatum(&window->partition_id));
	row_key(&keys[1], txns, TXNS_BY_OFFSET, 2, BTGreaterEqualStrategyNumber, Int64GetDatum(start));
	scan = row_scan(txns, TXNS_BY_OFFSET, keys, lengthof(keys));
	while (fits && index_getnext_slot(scan, BackwardScanDirection, row))
	{
		Datum stored;
		bytea *hashes;

		CHECK_FOR_INTERRUPTS();
		if (DatumGetTimestampTz(row_value(txns, row, TXNS_CREATED_AT)) < since)
		{
			window->covered_from = since;
			break;
		}
		stored = row_value(txns, row, TXNS_HASHES);
		hashes = DatumGetByteaPP(stored);
		fits =
			window_add(window, DatumGetInt64(row_value(txns, row, TXNS_BASE_OFFSET)),
					   (const uint8 *) VARDATA_ANY(hashes), VARSIZE_ANY_EXHDR(hashes) / HASH_SIZE);
		if (hashes != (bytea *) DatumGetPointer(stored))
			pfree(hashes);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(row);
	return fits;
}

/* The partition's window, with nothing verified when it is new. */
static DedupWindow *
window_get(const pg_uuid_t *partition_id)
{
	DedupWindow *window = hash_search(windows, partition_id, HASH_FIND, NULL);
	uint64 *slots;

	if (window == NULL)
	{
		(void) make_room(window_size(MIN_SLOTS), NULL);
		slots = slots_alloc(MIN_SLOTS);
		window = hash_search(windows, partition_id, HASH_ENTER, NULL);
		window->verified = -1;
		window->covered_from = DT_NOEND;
		window->slots = slots;
		window->nslots = MIN_SLOTS;
		window->count = 0;
		dlist_push_head(&recent, &window->node);
		used_memory += window_size(MIN_SLOTS);
	}
	window_touch(window);
	return window;
}

/* A window that can be brought up to date, or a new one in its place. */
static DedupWindow *
window_open(const pg_uuid_t *partition_id, int64 last_offset, TimestampTz since)
{
	DedupWindow *window = window_get(partition_id);

	if (window->verified >= 0 && (since < window->covered_from || last_offset < window->verified ||
								  window->count >= window->rebuild_at))
	{
		window_forget(window);
		window = window_get(partition_id);
	}
	if (window->verified < 0)
		window->covered_from = since;
	return window;
}

static void
forget_all(void)
{
	while (!dlist_is_empty(&recent))
		window_forget(dlist_head_element(DedupWindow, node, &recent));
}

/* Ends the windows' part in a transaction. */
static void
settle(bool committed)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &recent)
	{
		DedupWindow *window = dlist_container(DedupWindow, node, iter.cur);

		if (!window->touched)
			break;
		if (committed)
			window->touched = false;
		else
			window_forget(window);
	}
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT)
		settle(true);
	else if (event == XACT_EVENT_ABORT)
		settle(false);
}

static void
at_savepoint_end(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		settle(false);
}

static void
start_up(void)
{
	HASHCTL info = {0};

	window_context = AllocSetContextCreate(TopMemoryContext, "queen deduplication windows",
										   ALLOCSET_DEFAULT_SIZES);
	info.keysize = sizeof(pg_uuid_t);
	info.entrysize = sizeof(DedupWindow);
	info.hcxt = window_context;
	dlist_init(&recent);
	multiplier = pg_prng_uint64(&pg_global_prng_state) | 1;
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_savepoint_end, NULL);
	windows = hash_create("queen deduplication windows", 64, &info,
						  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* After DROP EXTENSION and CREATE EXTENSION nothing that was read counts. */
static void
check_source(LogTable *txns)
{
	if (windows == NULL)
		start_up();
	if (RelationGetRelid(txns->rel) != source_relid)
		forget_all();
	source_relid = RelationGetRelid(txns->rel);
}

static void
add_suspect(Suspects *suspects, int64 block)
{
	if (suspects->n > 0 && suspects->blocks[suspects->n - 1] == block)
		return;
	if (suspects->n == suspects->room)
	{
		suspects->room = Max(16, 2 * suspects->room);
		suspects->blocks = suspects->blocks == NULL
							   ? palloc(suspects->room * sizeof(int64))
							   : repalloc_huge(suspects->blocks, suspects->room * sizeof(int64));
	}
	suspects->blocks[suspects->n++] = block;
}

/* The blocks from "first" to "last" whose number has that part. */
static void
add_suspects(Suspects *suspects, uint64 block, int64 first, int64 last)
{
	int64 newest = last - (int64) ((member_block(last) + ANYWHERE - block) % ANYWHERE);

	if (block == ANYWHERE)
		suspects->anywhere = true;
	else
		for (int64 i = newest; i >= first; i -= (int64) ANYWHERE)
			add_suspect(suspects, i);
}

static void
window_look_up(const DedupWindow *window, uint64 hash, int64 first, int64 last, Suspects *suspects)
{
	uint64 i = slot_home(window->nslots, hash);

	for (; window->slots[i] != 0; i = (i + 1) & (window->nslots - 1))
		if ((window->slots[i] & ~BLOCK_MASK) == hash)
			add_suspects(suspects, window->slots[i] & BLOCK_MASK, first, last);
}

void
dedup_window_search(LogTable *txns, const pg_uuid_t *partition_id, int64 txns_start,
					int64 last_offset, TimestampTz since, const uint8 *hashes, int n,
					Suspects *suspects)
{
	DedupWindow *window;
	bool afresh;

	memset(suspects, 0, sizeof(*suspects));
	check_source(txns);
	window = window_open(partition_id, last_offset, since);
	afresh = window->verified < 0;
	if (window->verified < last_offset &&
		!window_read(window, txns, Max(window->verified + 1, txns_start), since))
	{
		window_forget(window);
		suspects->anywhere = true;
		return;
	}
	window->verified = last_offset;
	if (afresh)
		window->rebuild_at = Max(MIN_REBUILD, 2 * window->count);
	for (int i = 0; i < n; i++)
		window_look_up(window, member_hash(hashes + (Size) i * HASH_SIZE), txns_start / DEDUP_BLOCK,
					   last_offset / DEDUP_BLOCK, suspects);
}

void
dedup_window_add(const pg_uuid_t *partition_id, int64 base_offset, const uint8 *hashes, int n)
{
	DedupWindow *window =
		windows != NULL ? hash_search(windows, partition_id, HASH_FIND, NULL) : NULL;

	if (window == NULL || window->verified != base_offset - 1)
		return;
	window_touch(window); /* the search may not have been needed */
	if (window_add(window, base_offset, hashes, n))
		window->verified += n;
	else
		window_forget(window);
}

void
dedup_window_init(void)
{
	DefineCustomIntVariable(
		"queen.dedup_memory", "Memory per session for the hashes of deduplication windows.",
		"A window that does not fit is searched in the table at every push.", &dedup_memory,
		256 * 1024, 64, MAX_KILOBYTES, PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
}
