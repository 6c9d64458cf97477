/*
 * worker.c
 *		The frame that all workers share.
 *
 * A worker holds no lock and no snapshot while it sleeps.  It ends by itself
 * when the extension is not there; otherwise SIGTERM ends it, also in the
 * middle of a step.  The launcher decides whether it is started again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "gucs.h"
#include "history.h"
#include "lease_expiry.h"
#include "retention.h"
#include "sidecar_purge.h"
#include "wake.h"
#include "worker.h"

#define BACKOFF_FIRST_MS 500
#define BACKOFF_MAX_MS 60000

const WorkerDuty worker_duties[WORKER_KINDS] = {
	[WORKER_RETENTION] = {"retention", NULL, retention_cycle},
	[WORKER_SIDECAR_PURGE] = {"sidecar purge", NULL, sidecar_purge_cycle},
	[WORKER_LEASE_EXPIRY] = {"lease expiry", lease_expiry_start, lease_expiry_cycle},
	[WORKER_WAKE] = {"wake", wake_start, wake_cycle},
	[WORKER_HISTORY] = {"history", NULL, history_cycle},
};

/* Which worker this process is. */
static Database *my_database;
static WorkerSlot *my_slot;
static char my_database_name[NAMEDATALEN];
static bool cycle_failed; /* a step of the current cycle did */

extern PGDLLEXPORT void queen_worker_main(Datum main_arg);

Database *
worker_database(void)
{
	return my_database;
}

void
worker_set_oldest_due(TimestampTz since)
{
	SpinLockAcquire(&my_slot->mutex);
	my_slot->stats.oldest_due = since;
	SpinLockRelease(&my_slot->mutex);
}

void
worker_stats_reset(WorkerSlot *slot)
{
	WorkerStats fresh = {0};

	fresh.stats_reset = GetCurrentTimestamp();
	SpinLockAcquire(&slot->mutex);
	fresh.state = slot->stats.state;
	memcpy(fresh.step, slot->stats.step, sizeof(fresh.step));
	slot->stats = fresh;
	SpinLockRelease(&slot->mutex);
}

/*
 * Steps
 */

int
worker_batch(const Step *step)
{
	return Max(queen_maintenance_batch >> step->batch_shift, 1);
}

void
worker_call_function(Step *step, StepResult *result)
{
	Oid types[] = {INT4OID};
	Datum values[] = {Int32GetDatum(worker_batch(step))};
	HeapTuple row;
	Datum columns[4];
	bool isnull[4];

	if (SPI_execute_with_args(step->sql, 1, types, values, NULL, false, 0) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "%s did not return one row", step->name);
	row = SPI_tuptable->vals[0];
	heap_deform_tuple(row, SPI_tuptable->tupdesc, columns, isnull);
	result->rows = DatumGetInt64(columns[0]);
	result->messages = DatumGetInt64(columns[1]);
	result->bytes = DatumGetInt64(columns[2]);
	result->more = DatumGetBool(columns[3]);
}

void
worker_note_due(Step *step, StepResult *result)
{
	bool isnull;
	Datum since;

	if (SPI_execute(step->sql, false, 0) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "%s did not return one row", step->name);
	since = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	worker_set_oldest_due(isnull ? 0 : DatumGetTimestampTz(since));
}

static void
run_in_transaction(Step *step, StepResult *result)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	debug_query_string = step->name;
	pgstat_report_activity(STATE_RUNNING, step->name);
	if (StatementTimeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	step->work(step, result);
	disable_timeout(STATEMENT_TIMEOUT, false);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	debug_query_string = NULL;
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
}

static void
count_step(const StepResult *result)
{
	WorkerStats *stats = &my_slot->stats;

	SpinLockAcquire(&my_slot->mutex);
	stats->cycle_steps++;
	stats->cycle_rows += result->rows;
	stats->cycle_messages += result->messages;
	stats->cycle_bytes += result->bytes;
	stats->rows += result->rows;
	stats->messages += result->messages;
	stats->bytes += result->bytes;
	SpinLockRelease(&my_slot->mutex);
}

static void
count_error(const char *error)
{
	TimestampTz now = GetCurrentTimestamp();
	WorkerStats *stats = &my_slot->stats;

	SpinLockAcquire(&my_slot->mutex);
	stats->errors++;
	strlcpy(stats->last_error, error, sizeof(stats->last_error));
	stats->last_error_time = now;
	SpinLockRelease(&my_slot->mutex);
}

static bool
extension_present(void)
{
	MemoryContext context = CurrentMemoryContext;
	bool present;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	present = OidIsValid(get_extension_oid("queen", true));
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return present;
}

/* The launcher looks for the extension again from time to time. */
static void
end_without_extension(void)
{
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	my_database->ready = false;
	LWLockRelease(&queen_shared->lock);
	proc_exit(0);
}

/* Delay that grows with the failures; smaller batches when time ran out. */
static void
back_off(Step *step, const ErrorData *error)
{
	long pause = BACKOFF_FIRST_MS << Min(step->failures, 10);

	step->failures++;
	step->retry_at = clock_ms() + Min(pause, BACKOFF_MAX_MS);
	if ((error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		 error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE) &&
		worker_batch(step) > 1)
		step->batch_shift++;
}

/* Counts the error; logs it unless the step failed for the same cause before. */
static void
report_failure(Step *step, const ErrorData *error)
{
	char cause[LAST_ERROR_LEN];
	int level;

	snprintf(cause, sizeof(cause), "%s: %s", unpack_sql_state(error->sqlerrcode), error->message);
	cause[pg_mbcliplen(cause, strlen(cause), sizeof(cause) - 1)] = '\0';
	level = strcmp(cause, step->cause) == 0 ? DEBUG1 : WARNING;
	strlcpy(step->cause, cause, sizeof(step->cause));
	count_error(cause);
	ereport(level, (errcode(error->sqlerrcode),
					errmsg("%s failed in database \"%s\": %s", step->name, my_database_name, cause),
					error->detail ? errdetail_internal("%s", error->detail) : 0,
					error->hint ? errhint("%s", error->hint) : 0));
}

static void
handle_error(Step *step, MemoryContext context)
{
	ErrorData *error;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	disable_all_timeouts(false);
	QueryCancelPending = false;
	AbortCurrentTransaction();
	debug_query_string = NULL;
	pgstat_report_activity(STATE_IDLE, NULL);
	RESUME_INTERRUPTS();

	if (!extension_present())
		end_without_extension();
	back_off(step, error);
	report_failure(step, error);
	FreeErrorData(error);
}

long
worker_step_pause(const Step *step)
{
	return step->failures > 0 ? clock_ms_until(step->retry_at) : 0;
}

static void
reload_if_asked(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

StepOutcome
worker_step(Step *step)
{
	MemoryContext context = CurrentMemoryContext;
	StepResult result = {0};
	volatile bool failed = false;

	reload_if_asked();
	if (worker_step_pause(step) > 0)
	{
		cycle_failed = true;
		return STEP_FAILED;
	}
	SpinLockAcquire(&my_slot->mutex);
	my_slot->stats.state = STATE_STEPPING;
	strlcpy(my_slot->stats.step, step->name, sizeof(my_slot->stats.step));
	SpinLockRelease(&my_slot->mutex);

	PG_TRY();
	{
		run_in_transaction(step, &result);
	}
	PG_CATCH();
	{
		handle_error(step, context);
		failed = true;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);

	cycle_failed |= failed;
	if (failed)
		return STEP_FAILED;
	step->failures = 0;
	step->batch_shift = Max(step->batch_shift - 1, 0);
	step->cause[0] = '\0';
	count_step(&result);
	return result.more ? STEP_MORE : STEP_DONE;
}

bool
worker_steps(Step *step)
{
	StepOutcome outcome;

	do
		outcome = worker_step(step);
	while (outcome == STEP_MORE);
	return outcome == STEP_DONE;
}

/*
 * The process
 */

static void
release_slot(int code, Datum arg)
{
	Latch *launcher;

	SpinLockAcquire(&my_slot->mutex);
	my_slot->stats.state = STATE_STOPPED;
	SpinLockRelease(&my_slot->mutex);
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	my_slot->pid = 0;
	launcher = queen_shared->launcher_latch;
	LWLockRelease(&queen_shared->lock);
	ConditionVariableBroadcast(&queen_shared->worker_gone);
	if (launcher != NULL)
		SetLatch(launcher);
}

/*
 * Takes the place that the launcher has meant for this process.  False when
 * it is no longer wanted there, or another process has it.
 *
 * Callbacks run in reverse order: this one, registered before the connection
 * is made, runs when the process no longer counts as a user of the database.
 */
static bool
claim_slot(Oid oid, WorkerKind kind)
{
	Database *database;

	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	database = database_find(oid);
	if (database != NULL && database->wanted && database->holds == 0 &&
		database->workers[kind].pid == 0)
	{
		my_database = database;
		my_slot = &database->workers[kind];
		my_slot->pid = MyProcPid;
	}
	LWLockRelease(&queen_shared->lock);
	if (my_slot == NULL)
		return false;
	on_shmem_exit(release_slot, 0);
	return true;
}

static void
override(const char *setting, const char *value)
{
	SetConfigOption(setting, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * What a step has deleted or released, the next one would do again after a
 * crash: it need not wait for the disk.  A lock that is not free at once is
 * held by DDL, and nobody shall have to wait behind a worker that waits.
 */
static void
connect_to(Oid oid)
{
	BackgroundWorkerInitializeConnectionByOid(oid, InvalidOid, 0);
	override("synchronous_commit", "off");
	override("lock_timeout", "200ms");
	override("search_path", "pg_catalog, pg_temp");
	override("default_transaction_isolation", "read committed");
	override("default_transaction_read_only", "off");
	override("default_transaction_deferrable", "off");
	override("enable_seqscan", "off");
	override("jit", "off");

	StartTransactionCommand();
	strlcpy(my_database_name, get_database_name(oid), sizeof(my_database_name));
	CommitTransactionCommand();
}

/* Makes the launcher start the other workers of the database. */
static void
report_extension(void)
{
	Latch *launcher = NULL;

	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	if (!my_database->ready)
		launcher = queen_shared->launcher_latch;
	my_database->ready = true;
	LWLockRelease(&queen_shared->lock);
	if (launcher != NULL)
		SetLatch(launcher);
}

static void
check_extension(void)
{
	if (!extension_present())
		end_without_extension();
	report_extension();
}

static long
run_cycle(const WorkerDuty *duty)
{
	TimestampTz start = GetCurrentTimestamp();
	WorkerStats *stats = &my_slot->stats;
	long pause;

	cycle_failed = false;
	SpinLockAcquire(&my_slot->mutex);
	stats->cycle_start = start;
	stats->cycle_steps = 0;
	stats->cycle_rows = 0;
	stats->cycle_messages = 0;
	stats->cycle_bytes = 0;
	SpinLockRelease(&my_slot->mutex);

	pause = duty->cycle();

	SpinLockAcquire(&my_slot->mutex);
	stats->cycles++;
	stats->cycle_us = GetCurrentTimestamp() - start;
	stats->state = cycle_failed ? STATE_BACKING_OFF : STATE_SLEEPING;
	SpinLockRelease(&my_slot->mutex);
	return pause;
}

/* Sleeps for at most so long; true when the latch was set. */
static bool
wait_for_work(long pause)
{
	int events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause,
						   PG_WAIT_EXTENSION);

	if ((events & WL_LATCH_SET) == 0)
		return false;
	ResetLatch(MyLatch);
	return true;
}

static void
work(const WorkerDuty *duty)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "queen worker", ALLOCSET_DEFAULT_SIZES);
	int64 next_check = 0;
	int64 next_cycle = 0;
	bool woken = false;

	MemoryContextSwitchTo(context);
	for (;;)
	{
		reload_if_asked();
		if (clock_ms() >= next_check)
		{
			check_extension();
			next_check = clock_ms() + queen_restart_interval * INT64CONST(1000);
		}
		if (woken || clock_ms() >= next_cycle)
		{
			long pause = run_cycle(duty);

			next_cycle = pause == WORKER_SLEEP ? PG_INT64_MAX : clock_ms() + pause;
		}
		MemoryContextReset(context);
		woken = wait_for_work(clock_ms_until(Min(next_check, next_cycle)));
	}
}

/*
 * queen_worker_main(kind)
 *		Entry point of every worker process; the database is in bgw_extra.
 */
void
queen_worker_main(Datum main_arg)
{
	WorkerKind kind = DatumGetInt32(main_arg);
	Oid oid;

	memcpy(&oid, MyBgworkerEntry->bgw_extra, sizeof(oid));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (!claim_slot(oid, kind))
		proc_exit(0);
	connect_to(oid);
	check_extension();
	if (worker_duties[kind].start != NULL)
		worker_duties[kind].start();
	work(&worker_duties[kind]);
}

/* The process gives its place back, under the lock, before it ends: the pid is its own. */
void
worker_signal_end(const WorkerSlot *slot)
{
	if (slot->pid != 0)
		kill(slot->pid, SIGTERM);
}

bool
worker_launch(Oid oid, const char *database, WorkerKind kind, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "queen", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "queen_worker_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "queen %s for database %s",
			 worker_duties[kind].name, database);
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "queen %s", worker_duties[kind].name);
	worker.bgw_main_arg = Int32GetDatum(kind);
	memcpy(worker.bgw_extra, &oid, sizeof(oid));
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}
