/*
 * lease_expiry.c
 *		Releases leases that ran out, so that a waiting consumer gets the batch.
 *
 * The worker keeps a schedule of lease ends in its own memory, fed by the
 * commits that grant or extend leases.  It is only a hint of where to look: an
 * entry whose lease was given back meanwhile costs one look, and what the
 * schedule missed is found by reading all cursors from time to time.  So the
 * work is proportional to the leases that end, not to the cursors.
 *
 * A pop and an ack judge expiry by themselves; nothing depends on this worker.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "lib/pairingheap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "clock.h"
#include "gucs.h"
#include "lease_expiry.h"
#include "lease_inbox.h"
#include "worker.h"

typedef struct LeaseKey
{
	pg_uuid_t partition_id;
	const char *consumer_group;
} LeaseKey;

typedef struct Lease
{
	LeaseKey key; /* hash key */
	TimestampTz expires_at;
	pairingheap_node node;
} Lease;

/* The schedule: the same leases by cursor and, the earliest end first, by time. */
static MemoryContext schedule_context;
static HTAB *leases;
static pairingheap *by_end;

static int64 next_sweep; /* when to read all cursors again, by clock_ms() */

static uint32
hash_key(const void *key, Size size)
{
	const LeaseKey *lease = key;

	return hash_combine(
		hash_bytes((const unsigned char *) &lease->partition_id, UUID_LEN),
		hash_bytes((const unsigned char *) lease->consumer_group, strlen(lease->consumer_group)));
}

static int
match_key(const void *a, const void *b, Size size)
{
	const LeaseKey *one = a;
	const LeaseKey *other = b;
	int order = memcmp(&one->partition_id, &other->partition_id, UUID_LEN);

	return order != 0 ? order : strcmp(one->consumer_group, other->consumer_group);
}

static int
compare_ends(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz one = pairingheap_const_container(Lease, node, a)->expires_at;
	TimestampTz other = pairingheap_const_container(Lease, node, b)->expires_at;

	return one < other ? 1 : one > other ? -1 : 0;
}

static void
clear_schedule(void)
{
	HASHCTL info = {0};
	MemoryContext caller;

	if (schedule_context != NULL)
		MemoryContextDelete(schedule_context);
	schedule_context =
		AllocSetContextCreate(TopMemoryContext, "queen lease schedule", ALLOCSET_DEFAULT_SIZES);
	info.keysize = sizeof(LeaseKey);
	info.entrysize = sizeof(Lease);
	info.hash = hash_key;
	info.match = match_key;
	info.hcxt = schedule_context;
	leases = hash_create("queen lease schedule", 256, &info,
						 HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	caller = MemoryContextSwitchTo(schedule_context);
	by_end = pairingheap_allocate(compare_ends, NULL);
	MemoryContextSwitchTo(caller);
}

/* Enters a lease, or the new end of one that is there. */
static void
schedule(const pg_uuid_t *partition_id, const char *consumer_group, TimestampTz expires_at)
{
	LeaseKey key = {*partition_id, consumer_group};
	bool found;
	Lease *lease = hash_search(leases, &key, HASH_ENTER, &found);

	if (found)
		pairingheap_remove(by_end, &lease->node);
	else
		lease->key.consumer_group = MemoryContextStrdup(schedule_context, consumer_group);
	lease->expires_at = expires_at;
	pairingheap_add(by_end, &lease->node);
}

static void
unschedule(Lease *lease)
{
	char *consumer_group = unconstify(char *, lease->key.consumer_group);

	pairingheap_remove(by_end, &lease->node);
	hash_search(leases, &lease->key, HASH_REMOVE, NULL);
	pfree(consumer_group);
}

static Lease *
first_lease(void)
{
	return pairingheap_is_empty(by_end)
			   ? NULL
			   : pairingheap_container(Lease, node, pairingheap_first(by_end));
}

/* When the next lease ends. */
static TimestampTz
first_end(void)
{
	const Lease *lease = first_lease();

	return lease != NULL ? lease->expires_at : DT_NOEND;
}

/* Moves what commits have noted into the schedule; false when some of it was lost. */
static bool
read_inbox(void)
{
	char *buffer = palloc(LEASE_INBOX_SIZE);
	bool overflow;
	uint32 used = lease_inbox_take(buffer, &overflow);
	uint32 position = 0;
	const LeaseRecord *record;

	while ((record = lease_inbox_next(buffer, used, &position)) != NULL)
	{
		char *consumer_group = pnstrdup(record->consumer_group, record->group_len);

		schedule(&record->partition_id, consumer_group, record->expires_at);
		pfree(consumer_group);
	}
	pfree(buffer);
	return !overflow;
}

/* Schedules the rows (partition_id, consumer_group, lease_expires_at) of a result. */
static void
schedule_rows(const SPITupleTable *rows)
{
	for (uint64 i = 0; i < rows->numvals; i++)
	{
		bool isnull;
		Datum partition_id = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);
		char *consumer_group = SPI_getvalue(rows->vals[i], rows->tupdesc, 2);
		Datum expires_at = SPI_getbinval(rows->vals[i], rows->tupdesc, 3, &isnull);

		schedule(DatumGetUUIDP(partition_id), consumer_group, DatumGetTimestampTz(expires_at));
	}
}

/* The work of the sweep: builds the schedule anew from all cursors. */
static void
read_cursors(Step *step, StepResult *result)
{
	Portal portal = SPI_cursor_open_with_args(
		NULL,
		"SELECT partition_id, consumer_group, lease_expires_at FROM queen.log_consumers"
		" WHERE worker_id IS NOT NULL AND lease_expires_at IS NOT NULL",
		0, NULL, NULL, NULL, true, 0);

	clear_schedule();
	do
	{
		SPI_cursor_fetch(portal, true, 1000);
		schedule_rows(SPI_tuptable);
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0);
	SPI_cursor_close(portal);
}

static Step sweep_step = {.name = "search for leases", .work = read_cursors};

/* Takes at most "most" leases that are over from the schedule, as two arrays. */
static int
take_due(int most, Datum *partitions, Datum *groups)
{
	TimestampTz now = GetCurrentTimestamp();
	Datum *partition_ids = palloc(most * sizeof(Datum));
	Datum *consumer_groups = palloc(most * sizeof(Datum));
	Lease *lease;
	int n = 0;

	while (n < most && (lease = first_lease()) != NULL && lease->expires_at < now)
	{
		pg_uuid_t *partition_id = palloc(sizeof(pg_uuid_t));

		*partition_id = lease->key.partition_id;
		partition_ids[n] = UUIDPGetDatum(partition_id);
		consumer_groups[n] = CStringGetTextDatum(lease->key.consumer_group);
		unschedule(lease);
		n++;
	}
	*partitions =
		PointerGetDatum(construct_array(partition_ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	*groups =
		PointerGetDatum(construct_array(consumer_groups, n, TEXTOID, -1, false, TYPALIGN_INT));
	return n;
}

/*
 * The work of the expiry.  A cursor that is still leased afterwards was leased
 * again or renewed, or another session holds it: it stays in the schedule.
 */
static void
release_due(Step *step, StepResult *result)
{
	Oid types[] = {INT4OID, UUIDARRAYOID, TEXTARRAYOID};
	Datum values[3];
	bool isnull;

	values[0] = Int32GetDatum(take_due(worker_batch(step), &values[1], &values[2]));
	if (SPI_execute_with_args("SELECT rows, messages FROM queen.lease_expiry_step($1, $2, $3)", 3,
							  types, values, NULL, false, 0) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "lease_expiry_step did not return one row");
	result->rows =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	result->messages =
		DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));

	values[0] = Int32GetDatum(queen_lease_expiry_interval);
	SPI_execute_with_args(
		"SELECT c.partition_id, c.consumer_group,"
		" greatest(c.lease_expires_at, clock_timestamp() + $1 * interval '1 millisecond')"
		" FROM unnest($2, $3) AS k (partition_id, consumer_group)"
		" JOIN queen.log_consumers AS c"
		" ON c.partition_id = k.partition_id AND c.consumer_group = k.consumer_group"
		" WHERE c.worker_id IS NOT NULL AND c.lease_expires_at IS NOT NULL",
		3, types, values, NULL, false, 0);
	schedule_rows(SPI_tuptable);
}

static Step expiry_step = {.name = "queen.lease_expiry_step", .work = release_due};

void
lease_expiry_start(void)
{
	lease_inbox_attach();
	clear_schedule();
}

/* Runs what is due; false when a step failed, and then the schedule is not to be trusted. */
static bool
run_due(void)
{
	if (!read_inbox())
		next_sweep = 0;
	if (clock_ms() >= next_sweep)
	{
		if (worker_step(&sweep_step) == STEP_FAILED)
			return false;
		next_sweep = clock_ms() + queen_lease_sweep_interval * INT64CONST(1000);
	}
	while (first_end() < GetCurrentTimestamp())
		if (worker_step(&expiry_step) == STEP_FAILED)
		{
			next_sweep = 0;
			return false;
		}
	return true;
}

long
lease_expiry_cycle(void)
{
	bool complete = run_due();
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = first_end();

	worker_set_oldest_due(next < now ? next : 0);
	if (!complete)
		return Max(Max(worker_step_pause(&sweep_step), worker_step_pause(&expiry_step)), 1);
	if (TIMESTAMP_IS_NOEND(next) && lease_inbox_await())
		return clock_ms_until(next_sweep);
	return Min(Min(TimestampDifferenceMilliseconds(now, next) + 1, clock_ms_until(next_sweep)),
			   queen_lease_expiry_interval);
}
