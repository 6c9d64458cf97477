/*
 * lease_map.c
 *		Which partitions a lease holds, so that its renewal does not search.
 *
 * An index on the cursors' worker would have to follow every claim and every
 * acknowledgement, none of which could be a HOT update any more.  So this is a
 * table of fixed size in shared memory, where all front ends find it.  The id
 * of a lease says in which set of places its partitions are.  A place is free
 * when its lease is over.  Where all are taken the lease that ends first is
 * forgotten, and until that end the set's answers are not to be trusted.
 *
 * That the map is empty after a start of the server makes no gap: all
 * partitions of a lease are claimed in one transaction, so it knows all of them
 * or none.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/timestamp.h"

#include "function.h"
#include "lease_map.h"

QUEEN_FUNCTION(log_lease_partitions);

#define SETS 256
#define SET_PLACES 128

typedef struct LeasePlace
{
	pg_uuid_t worker_id;
	pg_uuid_t partition_id;
	TimestampTz expires_at; /* 0: never used */
	Oid database;
} LeasePlace;

typedef struct LeaseSet
{
	LWLock lock;			/* protects the rest */
	TimestampTz lost_until; /* the last end of a lease that was forgotten */
	LeasePlace places[SET_PLACES];
} LeaseSet;

static LeaseSet *sets; /* NULL: no shared memory */

Size
lease_map_shmem_size(void)
{
	return MAXALIGN(SETS * sizeof(LeaseSet));
}

void
lease_map_startup(int tranche)
{
	bool found;

	sets = ShmemInitStruct("queen lease map", lease_map_shmem_size(), &found);
	if (found)
		return;
	memset(sets, 0, lease_map_shmem_size());
	for (int i = 0; i < SETS; i++)
		LWLockInitialize(&sets[i].lock, tranche);
}

static LeaseSet *
set_of(const pg_uuid_t *worker_id)
{
	return &sets[hash_bytes(worker_id->data, UUID_LEN) % SETS];
}

static bool
is_of(const LeasePlace *place, const pg_uuid_t *worker_id)
{
	return place->database == MyDatabaseId && memcmp(&place->worker_id, worker_id, UUID_LEN) == 0;
}

/* The place of this lease on this partition, which gets one. */
static LeasePlace *
take_place(LeaseSet *set, const pg_uuid_t *worker_id, const pg_uuid_t *partition_id)
{
	LeasePlace *first = &set->places[0];

	for (int i = 0; i < SET_PLACES; i++)
	{
		LeasePlace *place = &set->places[i];

		if (is_of(place, worker_id) && memcmp(&place->partition_id, partition_id, UUID_LEN) == 0)
			return place;
		if (place->expires_at < first->expires_at)
			first = place;
	}
	if (first->expires_at >= GetCurrentTimestamp())
		set->lost_until = Max(set->lost_until, first->expires_at);
	first->worker_id = *worker_id;
	first->partition_id = *partition_id;
	first->expires_at = 0;
	first->database = MyDatabaseId;
	return first;
}

void
lease_map_add(const pg_uuid_t *worker_id, const pg_uuid_t *partition_id, TimestampTz expires_at)
{
	LeaseSet *set = set_of(worker_id);
	LeasePlace *place;

	LWLockAcquire(&set->lock, LW_EXCLUSIVE);
	/* Groups may share the lease. */
	place = take_place(set, worker_id, partition_id);
	place->expires_at = Max(place->expires_at, expires_at);
	LWLockRelease(&set->lock);
}

/* How many partitions the lease holds; 0 when that is not known. */
static int
find_partitions(const pg_uuid_t *worker_id, pg_uuid_t *partitions)
{
	LeaseSet *set = set_of(worker_id);
	int n = 0;

	LWLockAcquire(&set->lock, LW_SHARED);
	if (set->lost_until < GetCurrentTimestamp())
		for (int i = 0; i < SET_PLACES; i++)
			if (is_of(&set->places[i], worker_id))
				partitions[n++] = set->places[i].partition_id;
	LWLockRelease(&set->lock);
	return n;
}

/*
 * log_lease_partitions(worker uuid) returns uuid[]
 *		NULL when it is not known.
 */
Datum
log_lease_partitions(PG_FUNCTION_ARGS)
{
	pg_uuid_t partitions[SET_PLACES];
	Datum elements[SET_PLACES];
	int n = sets == NULL ? 0 : find_partitions(PG_GETARG_UUID_P(0), partitions);

	if (n == 0)
		PG_RETURN_NULL();
	for (int i = 0; i < n; i++)
		elements[i] = UUIDPGetDatum(&partitions[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(elements, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}
