/*
 * shmem.c
 *		Shared memory of the extension.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "lease_map.h"
#include "listeners.h"
#include "shmem.h"
#include "stats.h"
#include "worklist.h"

QueenShared *queen_shared = NULL;

static shmem_request_hook_type prev_shmem_request_hook;
static shmem_startup_hook_type prev_shmem_startup_hook;

static void
request_shmem(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(QueenShared)));
	RequestAddinShmemSpace(stats_shmem_size());
	RequestAddinShmemSpace(worklist_shmem_size());
	RequestAddinShmemSpace(lease_map_shmem_size());
	RequestAddinShmemSpace(listeners_shmem_size());
	RequestNamedLWLockTranche("queen", 1);
}

static void
init_database(Database *database, int tranche)
{
	for (int i = 0; i < WORKER_KINDS; i++)
	{
		SpinLockInit(&database->workers[i].mutex);
		database->workers[i].stats.stats_reset = GetCurrentTimestamp();
	}
	LWLockInitialize(&database->wake.lock, tranche);
	LWLockInitialize(&database->leases.lock, tranche);
}

static void
startup_shmem(void)
{
	bool found;
	/* The named tranche is asked for to have its number known to every process. */
	int tranche = GetNamedLWLockTranche("queen")->lock.tranche;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	queen_shared = ShmemInitStruct("queen", sizeof(QueenShared), &found);
	if (!found)
	{
		memset(queen_shared, 0, sizeof(QueenShared));
		LWLockInitialize(&queen_shared->lock, tranche);
		ConditionVariableInit(&queen_shared->worker_gone);
		for (int i = 0; i < MAX_DATABASES; i++)
			init_database(&queen_shared->databases[i], tranche);
	}
	stats_startup(tranche, found);
	worklist_startup(tranche);
	lease_map_startup(tranche);
	listeners_startup(tranche);
	LWLockRelease(AddinShmemInitLock);
}

Database *
database_find(Oid oid)
{
	for (int i = 0; i < MAX_DATABASES; i++)
		if (queen_shared->databases[i].oid == oid)
			return &queen_shared->databases[i];
	return NULL;
}

/*
 * Without the lock: a place once found may be given to another database only
 * after this one was dropped or is no longer looked after, and then what is
 * noted in it does no harm.
 */
Database *
database_mine(void)
{
	static Database *mine = NULL;

	if (mine == NULL || mine->oid != MyDatabaseId)
		mine = database_find(MyDatabaseId);
	return mine;
}

QueueKey
queue_key(const pg_uuid_t *queue)
{
	QueueKey key;

	memset(&key, 0, sizeof(key));
	key.database = MyDatabaseId;
	key.queue = *queue;
	return key;
}

void
shmem_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}
