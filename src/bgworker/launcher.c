/*
 * launcher.c
 *		Keeps the workers of every database in queen.databases running.
 *
 * The only process that PostgreSQL itself restarts.  Workers outlive it: when
 * it comes back it finds them in shared memory.  After a crash of the server
 * shared memory is new, and so are the workers.
 *
 * In a database one worker goes first, to see whether the extension is there;
 * the others follow when it has found it.
 */
#include "postgres.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "clock.h"
#include "gucs.h"
#include "launcher.h"
#include "shmem.h"
#include "worker.h"

#define FIRST_WORKER WORKER_RETENTION

typedef struct Target
{
	Oid oid;
	char name[NAMEDATALEN];
} Target;

/* Aligned with the places in shared memory. */
static BackgroundWorkerHandle *handles[MAX_DATABASES][WORKER_KINDS];
static char names[MAX_DATABASES][NAMEDATALEN];

extern PGDLLEXPORT void queen_launcher_main(Datum main_arg);

static bool
is_listed(const char *name, const List *list)
{
	ListCell *cell;

	foreach (cell, list)
		if (strcmp(lfirst(cell), name) == 0)
			return true;
	return false;
}

/* Whether anybody can connect to it. */
static bool
is_open(Form_pg_database database)
{
#ifdef DATCONNLIMIT_INVALID_DB /* since 15.4: DROP DATABASE was interrupted */
	if (database->datconnlimit == DATCONNLIMIT_INVALID_DB)
		return false;
#endif
	return database->datallowconn;
}

/*
 * The databases of queen.databases that exist.  Fills "targets", returns how
 * many.  Reads all of pg_database: without a database of its own a process
 * cannot always use the indexes.
 */
static int
find_targets(Target *targets)
{
	char *setting = pstrdup(queen_databases);
	List *list;
	Relation relation;
	TableScanDesc scan;
	HeapTuple tuple;
	int n = 0;

	if (!queen_workers || !SplitIdentifierString(setting, ',', &list))
		return 0;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	relation = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(relation, 0, NULL);
	while (n < MAX_DATABASES && (tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

		if (!is_open(database) || !is_listed(NameStr(database->datname), list))
			continue;
		targets[n].oid = database->oid;
		strlcpy(targets[n].name, NameStr(database->datname), NAMEDATALEN);
		n++;
	}
	table_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return n;
}

static bool
has_workers(const Database *database)
{
	for (int kind = 0; kind < WORKER_KINDS; kind++)
		if (database->workers[kind].pid != 0)
			return true;
	return false;
}

/* A place for a database that has none: a free one, else one that is no longer used. */
static Database *
new_place(Oid oid)
{
	Database *place = database_find(InvalidOid);

	for (int i = 0; place == NULL && i < MAX_DATABASES; i++)
	{
		Database *candidate = &queen_shared->databases[i];

		if (!candidate->wanted && candidate->holds == 0 && !has_workers(candidate))
			place = candidate;
	}
	if (place == NULL)
		return NULL;
	place->oid = oid;
	place->ready = false;
	for (int kind = 0; kind < WORKER_KINDS; kind++)
	{
		place->workers[kind].launched_at = 0;
		worker_stats_reset(&place->workers[kind]);
	}
	return place;
}

/* Marks in shared memory which databases are wanted. */
static void
note_targets(const Target *targets, int n)
{
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_DATABASES; i++)
		queen_shared->databases[i].wanted = false;
	for (int i = 0; i < n; i++)
	{
		Database *database = database_find(targets[i].oid);

		if (database == NULL)
			database = new_place(targets[i].oid);
		if (database == NULL)
			continue; /* the next round has room, when workers of old databases have ended */
		database->wanted = true;
		strlcpy(names[database - queen_shared->databases], targets[i].name, NAMEDATALEN);
	}
	LWLockRelease(&queen_shared->lock);
}

/* Ends the workers of databases that are not wanted. */
static void
end_unwanted(void)
{
	LWLockAcquire(&queen_shared->lock, LW_SHARED);
	for (int i = 0; i < MAX_DATABASES; i++)
		for (int kind = 0; kind < WORKER_KINDS && !queen_shared->databases[i].wanted; kind++)
			worker_signal_end(&queen_shared->databases[i].workers[kind]);
	LWLockRelease(&queen_shared->lock);
}

static void
complain_of_limit(int databases)
{
	static bool complained = false;

	if (complained)
		return;
	complained = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("queen cannot start all of its workers: too few worker processes"),
			 errdetail("One launcher and %d workers for each of %d databases are needed.",
					   WORKER_KINDS, databases),
			 errhint("Set max_worker_processes to at least %d more than other extensions and "
					 "parallel queries need.",
					 1 + WORKER_KINDS * databases)));
}

/* Whether the process that was asked for last is still to come, or there. */
static bool
is_alive(BackgroundWorkerHandle **handle)
{
	pid_t pid;
	BgwHandleStatus status;

	if (*handle == NULL)
		return false;
	status = GetBackgroundWorkerPid(*handle, &pid);
	if (status == BGWH_STARTED || status == BGWH_NOT_YET_STARTED)
		return true;
	pfree(*handle);
	*handle = NULL;
	return false;
}

/* Whether the worker is to be started now; else lowers "pause" to when it may be. */
static bool
start_is_due(int place, WorkerKind kind, long *pause)
{
	Database *database = &queen_shared->databases[place];
	WorkerSlot *slot = &database->workers[kind];
	int64 now = clock_ms();
	int64 earliest;
	bool due = false;

	if (is_alive(&handles[place][kind]))
		return false;
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	if (database->wanted && database->holds == 0 && slot->pid == 0 &&
		(database->ready || kind == FIRST_WORKER))
	{
		earliest = slot->launched_at + queen_restart_interval * INT64CONST(1000);
		due = slot->launched_at == 0 || now >= earliest;
		if (due)
			slot->launched_at = now;
		else
			*pause = Min(*pause, earliest - now);
	}
	LWLockRelease(&queen_shared->lock);
	return due;
}

/* Starts what is missing; returns the milliseconds to the next look. */
static long
start_missing(int databases)
{
	long pause = queen_restart_interval * 1000L;
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext); /* of the handles */

	for (int place = 0; place < MAX_DATABASES; place++)
		for (int kind = 0; kind < WORKER_KINDS; kind++)
			if (start_is_due(place, kind, &pause) &&
				!worker_launch(queen_shared->databases[place].oid, names[place], kind,
							   &handles[place][kind]))
				complain_of_limit(databases);
	MemoryContextSwitchTo(context);
	return pause;
}

static long
look_after_databases(void)
{
	Target targets[MAX_DATABASES];
	int n = find_targets(targets);

	note_targets(targets, n);
	end_unwanted();
	return start_missing(n);
}

static void
forget_latch(int code, Datum arg)
{
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	queen_shared->launcher_latch = NULL;
	LWLockRelease(&queen_shared->lock);
}

static void
publish_latch(void)
{
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	queen_shared->launcher_latch = MyLatch;
	LWLockRelease(&queen_shared->lock);
	before_shmem_exit(forget_latch, 0);
}

/*
 * queen_launcher_main(unused)
 *		Entry point of the launcher process.
 */
void
queen_launcher_main(Datum main_arg)
{
	MemoryContext context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	publish_latch();

	context = AllocSetContextCreate(TopMemoryContext, "queen launcher", ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		long pause;

		MemoryContextSwitchTo(context);
		pause = look_after_databases();
		MemoryContextReset(context);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

void
launcher_register(void)
{
	BackgroundWorker worker = {0};

	/* Nobody may write to a server that pg_upgrade has started. */
	if (IsBinaryUpgrade)
		return;
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = queen_restart_interval;
	strlcpy(worker.bgw_library_name, "queen", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "queen_launcher_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "queen launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "queen launcher", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}
