/*
 * gucs.c
 *		Settings of the workers and of the statistics.
 *
 * What only the workers read changes with a reload.  What a maintenance call
 * by hand reads as well can be set per session.  The size of shared memory is
 * fixed when the server starts, so its setting exists only when preloaded.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "gucs.h"
#include "shmem.h"

char *queen_databases;
bool queen_workers = true;
int queen_restart_interval = 5;
int queen_retention_interval = 5000;
int queen_sidecar_purge_interval = 5000;
int queen_lease_expiry_interval = 250;
int queen_lease_sweep_interval = 60;
int queen_wake_delay = 1;
int queen_history_interval = 60;
int queen_maintenance_batch = 1000;
int queen_max_tracked_queues = 1024;
bool queen_use_worklists = true;
int queen_worklist_size = 65536;
int queen_worklist_check_interval = 300;
int queen_dedup_floor = 0;
int queen_wake_origin = 0;

/* Read by the SQL steps, which see the values as text. */
static int history_retention = 30 * 86400;
static int partition_cleanup_age = 30 * 86400;

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char *copy = pstrdup(*newval);
	List *names;
	bool valid = SplitIdentifierString(copy, ',', &names);

	if (!valid)
		GUC_check_errdetail("List syntax is invalid.");
	else if (list_length(names) > MAX_DATABASES)
	{
		GUC_check_errdetail("At most %d databases can be named.", MAX_DATABASES);
		valid = false;
	}
	list_free(names);
	pfree(copy);
	return valid;
}

static void
define_launcher_settings(void)
{
	DefineCustomStringVariable("queen.databases", "Databases that queen's workers look after.",
							   "A comma-separated list of names.", &queen_databases, "postgres",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_databases, NULL, NULL);
	DefineCustomBoolVariable("queen.workers", "Runs queen's background workers.",
							 "When off, maintenance has to be called: CALL queen.maintain().",
							 &queen_workers, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.restart_interval", "Time between two starts of a worker that ended.",
		"Also how often a database is checked for the extension.", &queen_restart_interval, 5, 1,
		3600, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
}

static void
define_intervals(void)
{
	DefineCustomIntVariable("queen.retention_interval", "Time between two cycles of retention.",
							NULL, &queen_retention_interval, 5000, 100, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("queen.sidecar_purge_interval",
							"Time between two cycles of the sidecar purge.", NULL,
							&queen_sidecar_purge_interval, 5000, 100, INT_MAX, PGC_SIGHUP,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("queen.lease_expiry_interval",
							"Longest time after which a lease that ran out is released.", NULL,
							&queen_lease_expiry_interval, 250, 10, 60000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.lease_sweep_interval", "Time between two searches of all cursors for leases.",
		"Finds what the schedule of lease ends has missed.", &queen_lease_sweep_interval, 60, 1,
		86400, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("queen.wake_delay", "Shortest time between two wake-up notifications.",
							"Queues that are written meanwhile share the next one.",
							&queen_wake_delay, 1, 0, 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL,
							NULL);
	DefineCustomIntVariable(
		"queen.history_interval", "Time between two rows of history of a queue.", NULL,
		&queen_history_interval, 60, 1, 86400, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
}

static void
define_step_settings(void)
{
	DefineCustomBoolVariable("queen.use_worklists",
							 "Pops of any partition look where there is work, as far as known.",
							 "When off, they search the tables.", &queen_use_worklists, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.worklist_check_interval",
		"Time between two walks of a consumer group through a queue's partitions.",
		"Finds partitions with work that are not remembered.", &queen_worklist_check_interval, 300,
		1, 86400, PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.wake_origin", "Number that this session's wake-up notifications carry.",
		"A front end sets its own, so that it need not act on what it did itself.",
		&queen_wake_origin, 0, 0, INT_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.dedup_floor", "Shortest deduplication window for this session's pushes.",
		"The replay of a spool sets it, to find what may have been stored already.",
		&queen_dedup_floor, 0, 0, 86400, PGC_USERSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.maintenance_batch", "Rows that one maintenance step handles at most.",
		"A step is one transaction and holds the lock of one partition.", &queen_maintenance_batch,
		1000, 1, 10000, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("queen.history_retention", "Age at which history is deleted.", NULL,
							&history_retention, 30 * 86400, 60, INT_MAX, PGC_SUSET, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("queen.partition_cleanup_age",
							"Time without a write after which an empty partition is removed.", NULL,
							&partition_cleanup_age, 30 * 86400, 86400, INT_MAX, PGC_SUSET,
							GUC_UNIT_S, NULL, NULL, NULL);
}

static void
define_sizes(void)
{
	DefineCustomIntVariable("queen.max_tracked_queues", "Queues that are counted one by one.",
							"Queues beyond this number are counted together.",
							&queen_max_tracked_queues, 1024, 16, 1024 * 1024, PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable(
		"queen.worklist_size",
		"Partitions with work that are remembered, over all consumer groups.",
		"One group has at most a quarter. Pops search the tables for what is not remembered.",
		&queen_worklist_size, 65536, 64, 16 * 1024 * 1024, PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

void
gucs_init(void)
{
	define_launcher_settings();
	define_intervals();
	define_step_settings();
	if (process_shared_preload_libraries_in_progress)
		define_sizes();
}
