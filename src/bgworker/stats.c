/*
 * stats.c
 *		Counters per queue, in shared memory and in a file.
 *
 * The table has a fixed size; what finds no room in it is counted in one
 * common entry.  Counters are added to under the shared lock, entries come and
 * go under the exclusive one.
 *
 * As the server's own statistics they are written to a file when the server
 * stops, and start from zero after a crash: the file is removed as soon as it
 * was read, and it is not believed unless the server was shut down cleanly.
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "gucs.h"
#include "shmem.h"
#include "stats.h"
#include "worker.h"

#define STATS_FILE PGSTAT_STAT_PERMANENT_DIRECTORY "/queen.stat"
#define STATS_MAGIC 0x51535402

typedef struct StatsShared
{
	LWLock lock;	 /* protects the table: shared to count, exclusive to add and remove */
	QueueStats rest; /* what found no room in the table */
} StatsShared;

/* The file: this header, then the entries as they are in memory. */
typedef struct StatsFileHeader
{
	uint32 magic;
	uint32 entry_size;
	uint32 worker_size;
	uint32 nqueues;
	uint32 nworkers;
} StatsFileHeader;

typedef struct WorkerStatsEntry
{
	Oid database;
	WorkerKind kind;
	WorkerStats stats;
} WorkerStatsEntry;

static StatsShared *shared;
static HTAB *table;

static void
clear_counters(QueueStats *stats)
{
	for (int i = 0; i < QUEUE_COUNTERS; i++)
		pg_atomic_write_u64(&stats->counters[i], 0);
	pg_atomic_write_u64(&stats->max_pop_lag, 0);
	stats->stats_reset = GetCurrentTimestamp();
}

static void
init_entry(QueueStats *stats)
{
	for (int i = 0; i < QUEUE_COUNTERS; i++)
		pg_atomic_init_u64(&stats->counters[i], 0);
	pg_atomic_init_u64(&stats->max_pop_lag, 0);
	pg_atomic_init_u32(&stats->parked, 0);
	stats->stats_reset = GetCurrentTimestamp();
}

/* The entry of a queue, with the lock held: exclusively if "create". */
static QueueStats *
find_entry(const QueueKey *key, bool create)
{
	bool found;
	QueueStats *stats = hash_search(table, key, HASH_FIND, NULL);

	if (stats != NULL || !create)
		return stats;
	if (hash_get_num_entries(table) >= queen_max_tracked_queues)
		return &shared->rest;
	stats = hash_search(table, key, HASH_ENTER_NULL, &found);
	if (stats == NULL)
		return &shared->rest;
	init_entry(stats);
	return stats;
}

/* Locks the table and returns the queue's entry, which is there until the lock is released. */
static QueueStats *
lock_entry(const pg_uuid_t *queue)
{
	QueueKey key = queue_key(queue);
	QueueStats *stats;

	LWLockAcquire(&shared->lock, LW_SHARED);
	stats = find_entry(&key, false);
	if (stats == NULL)
	{
		LWLockRelease(&shared->lock);
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		stats = find_entry(&key, true);
	}
	return stats;
}

static void
raise_to(pg_atomic_uint64 *maximum, uint64 value)
{
	uint64 current = pg_atomic_read_u64(maximum);

	while (value > current)
		if (pg_atomic_compare_exchange_u64(maximum, &current, value))
			break;
}

void
stats_add(const pg_uuid_t *queue, const int64 *counters, int64 max_pop_lag)
{
	QueueStats *stats = lock_entry(queue);

	for (int i = 0; i < QUEUE_COUNTERS; i++)
		if (counters[i] != 0)
			pg_atomic_fetch_add_u64(&stats->counters[i], counters[i]);
	raise_to(&stats->max_pop_lag, max_pop_lag);
	LWLockRelease(&shared->lock);
}

void
stats_add_parked(const pg_uuid_t *queue, int32 change)
{
	QueueStats *stats = lock_entry(queue);

	pg_atomic_fetch_add_u32(&stats->parked, change);
	LWLockRelease(&shared->lock);
}

QueueStats *
stats_copy(int *n)
{
	HASH_SEQ_STATUS scan;
	QueueStats *stats;
	QueueStats *copy;

	*n = 0;
	LWLockAcquire(&shared->lock, LW_SHARED);
	copy = palloc((hash_get_num_entries(table) + 1) * sizeof(QueueStats));
	hash_seq_init(&scan, table);
	while ((stats = hash_seq_search(&scan)) != NULL)
		if (stats->key.database == MyDatabaseId)
			copy[(*n)++] = *stats;
	copy[(*n)++] = shared->rest;
	LWLockRelease(&shared->lock);
	return copy;
}

/* What was counted for it stays counted: sums over all queues must not fall. */
void
stats_forget_queue(const pg_uuid_t *queue)
{
	static const pg_uuid_t nil;
	QueueKey key = queue_key(queue);
	QueueKey gone_key = queue_key(&nil);
	QueueStats *stats;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	stats = hash_search(table, &key, HASH_FIND, NULL);
	if (stats != NULL && memcmp(&key, &gone_key, sizeof(QueueKey)) != 0)
	{
		uint64 counters[QUEUE_COUNTERS];
		QueueStats *gone;

		for (int i = 0; i < QUEUE_COUNTERS; i++)
			counters[i] = pg_atomic_read_u64(&stats->counters[i]);
		hash_search(table, &key, HASH_REMOVE, NULL);
		gone = find_entry(&gone_key, true);
		for (int i = 0; i < QUEUE_COUNTERS; i++)
			pg_atomic_fetch_add_u64(&gone->counters[i], counters[i]);
	}
	LWLockRelease(&shared->lock);
}

void
stats_forget_database(Oid database)
{
	HASH_SEQ_STATUS scan;
	QueueStats *stats;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, table);
	while ((stats = hash_seq_search(&scan)) != NULL)
		if (stats->key.database == database)
			hash_search(table, &stats->key, HASH_REMOVE, NULL);
	LWLockRelease(&shared->lock);
}

void
stats_forget_max_lag(void)
{
	HASH_SEQ_STATUS scan;
	QueueStats *stats;

	LWLockAcquire(&shared->lock, LW_SHARED);
	hash_seq_init(&scan, table);
	while ((stats = hash_seq_search(&scan)) != NULL)
		if (stats->key.database == MyDatabaseId)
			pg_atomic_write_u64(&stats->max_pop_lag, 0);
	LWLockRelease(&shared->lock);
}

void
stats_reset(void)
{
	HASH_SEQ_STATUS scan;
	QueueStats *stats;
	Database *database = database_mine();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, table);
	while ((stats = hash_seq_search(&scan)) != NULL)
		if (stats->key.database == MyDatabaseId)
			clear_counters(stats);
	clear_counters(&shared->rest);
	LWLockRelease(&shared->lock);

	for (int i = 0; database != NULL && i < WORKER_KINDS; i++)
		worker_stats_reset(&database->workers[i]);
}

/* Puts the counters of a queue that were read from the file into the table. */
static void
restore_queue(QueueStats *saved)
{
	QueueStats *stats = &shared->rest;

	if (OidIsValid(saved->key.database))
		stats = find_entry(&saved->key, true);
	for (int i = 0; i < QUEUE_COUNTERS; i++)
		pg_atomic_fetch_add_u64(&stats->counters[i], pg_atomic_read_u64(&saved->counters[i]));
	stats->stats_reset = saved->stats_reset;
}

static void
restore_worker(const WorkerStatsEntry *saved)
{
	Database *database = database_find(saved->database);
	WorkerStats *stats;

	if (database == NULL)
		database = database_find(InvalidOid);
	if (database == NULL || saved->kind >= WORKER_KINDS)
		return;
	database->oid = saved->database;
	stats = &database->workers[saved->kind].stats;
	*stats = saved->stats;
	stats->state = STATE_STOPPED;
	stats->oldest_due = 0;
}

static bool
read_entries(FILE *file)
{
	StatsFileHeader header;
	QueueStats queue;
	WorkerStatsEntry worker;

	if (fread(&header, sizeof(header), 1, file) != 1 || header.magic != STATS_MAGIC ||
		header.entry_size != sizeof(queue) || header.worker_size != sizeof(worker))
		return false;
	for (uint32 i = 0; i < header.nqueues; i++)
	{
		if (fread(&queue, sizeof(queue), 1, file) != 1)
			return false;
		restore_queue(&queue);
	}
	for (uint32 i = 0; i < header.nworkers; i++)
	{
		if (fread(&worker, sizeof(worker), 1, file) != 1)
			return false;
		restore_worker(&worker);
	}
	return true;
}

static bool
shut_down_cleanly(void)
{
	bool crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	bool clean =
		crc_ok && (control->state == DB_SHUTDOWNED || control->state == DB_SHUTDOWNED_IN_RECOVERY);

	pfree(control);
	return clean;
}

static void
load(void)
{
	FILE *file = AllocateFile(STATS_FILE, PG_BINARY_R);

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG, (errcode_for_file_access(),
						  errmsg("could not open file \"%s\": %m", STATS_FILE)));
		return;
	}
	if (shut_down_cleanly() && !read_entries(file))
		ereport(LOG, (errcode(ERRCODE_DATA_CORRUPTED),
					  errmsg("could not read statistics from file \"%s\"", STATS_FILE)));
	FreeFile(file);
	unlink(STATS_FILE);
}

static bool
write_entries(FILE *file)
{
	StatsFileHeader header = {0};
	HASH_SEQ_STATUS scan;
	QueueStats *stats;
	bool ok = true;

	header.magic = STATS_MAGIC;
	header.entry_size = sizeof(QueueStats);
	header.worker_size = sizeof(WorkerStatsEntry);
	header.nqueues = hash_get_num_entries(table) + 1;
	for (int i = 0; i < MAX_DATABASES; i++)
		if (OidIsValid(queen_shared->databases[i].oid))
			header.nworkers += WORKER_KINDS;
	ok = fwrite(&header, sizeof(header), 1, file) == 1 &&
		 fwrite(&shared->rest, sizeof(QueueStats), 1, file) == 1;
	hash_seq_init(&scan, table);
	while ((stats = hash_seq_search(&scan)) != NULL)
		ok = ok && fwrite(stats, sizeof(QueueStats), 1, file) == 1;
	for (int i = 0; i < MAX_DATABASES; i++)
	{
		const Database *database = &queen_shared->databases[i];

		for (int kind = 0; ok && OidIsValid(database->oid) && kind < WORKER_KINDS; kind++)
		{
			WorkerStatsEntry entry = {database->oid, kind, database->workers[kind].stats};

			ok = fwrite(&entry, sizeof(entry), 1, file) == 1;
		}
	}
	return ok;
}

/* Runs in the postmaster when it ends, without locks: nobody else is left. */
static void
save(int code, Datum arg)
{
	const char *temporary = STATS_FILE ".tmp";
	FILE *file;

	if (code != 0)
		return;
	file = AllocateFile(temporary, PG_BINARY_W);
	if (file != NULL)
	{
		bool ok = write_entries(file);

		ok = FreeFile(file) == 0 && ok;
		if (ok && durable_rename(temporary, STATS_FILE, LOG) == 0)
			return;
	}
	ereport(LOG, (errcode_for_file_access(), errmsg("could not write file \"%s\": %m", temporary)));
	unlink(temporary);
}

Size
stats_shmem_size(void)
{
	return add_size(MAXALIGN(sizeof(StatsShared)),
					hash_estimate_size(queen_max_tracked_queues, sizeof(QueueStats)));
}

void
stats_startup(int tranche, bool found)
{
	HASHCTL info = {0};
	bool have_shared;

	shared = ShmemInitStruct("queen statistics", sizeof(StatsShared), &have_shared);
	info.keysize = sizeof(QueueKey);
	info.entrysize = sizeof(QueueStats);
	table = ShmemInitHash("queen queues", queen_max_tracked_queues, queen_max_tracked_queues, &info,
						  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	if (found)
		return;
	memset(shared, 0, sizeof(StatsShared));
	LWLockInitialize(&shared->lock, tranche);
	init_entry(&shared->rest);
	if (!IsUnderPostmaster)
	{
		load();
		on_shmem_exit(save, 0);
	}
}
