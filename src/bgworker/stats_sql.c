/*
 * stats_sql.c
 *		What the statistics views read.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"

#include "function.h"
#include "shmem.h"
#include "stats.h"
#include "worker.h"

QUEEN_FUNCTION(stat_preloaded);
QUEEN_FUNCTION(stat_queues);
QUEEN_FUNCTION(stat_workers);
QUEEN_FUNCTION(stat_forget_max_lag);
QUEEN_FUNCTION(pg_stat_queen_reset);

static void
require_preload(void)
{
	if (queen_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("statistics are not collected because queen is not preloaded"),
				 errhint("Add \"queen\" to shared_preload_libraries and restart the server.")));
}

/*
 * stat_preloaded() returns bool
 */
Datum
stat_preloaded(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(queen_shared != NULL);
}

static bool
has_counted(QueueStats *stats)
{
	for (int c = 0; c < QUEUE_COUNTERS; c++)
		if (pg_atomic_read_u64(&stats->counters[c]) != 0)
			return true;
	return pg_atomic_read_u32(&stats->parked) != 0;
}

/*
 * stat_queues(), columns: queue_id uuid, the counters in the order of
 * QueueCounter, max_pop_lag bigint, parked bigint, stats_reset timestamptz
 */
Datum
stat_queues(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum values[QUEUE_COUNTERS + 4];
	bool nulls[QUEUE_COUNTERS + 4] = {false};
	QueueStats *stats;
	int n;

	require_preload();
	InitMaterializedSRF(fcinfo, 0);
	stats = stats_copy(&n);
	for (int i = 0; i < n; i++)
	{
		nulls[0] = !OidIsValid(stats[i].key.database);
		if (nulls[0] && !has_counted(&stats[i]))
			continue;
		values[0] = UUIDPGetDatum(&stats[i].key.queue);
		for (int c = 0; c < QUEUE_COUNTERS; c++)
			values[c + 1] = Int64GetDatum(pg_atomic_read_u64(&stats[i].counters[c]));
		values[QUEUE_COUNTERS + 1] = Int64GetDatum(pg_atomic_read_u64(&stats[i].max_pop_lag));
		values[QUEUE_COUNTERS + 2] =
			Int64GetDatum(Max((int32) pg_atomic_read_u32(&stats[i].parked), 0));
		values[QUEUE_COUNTERS + 3] = TimestampTzGetDatum(stats[i].stats_reset);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

static const char *
state_name(WorkerState state)
{
	switch (state)
	{
		case STATE_STOPPED:
			return "stopped";
		case STATE_SLEEPING:
			return "sleeping";
		case STATE_STEPPING:
			return "running";
		case STATE_BACKING_OFF:
			return "backing off";
	}
	return NULL;
}

static Datum
time_or_null(TimestampTz time, bool *isnull)
{
	*isnull = time == 0;
	return TimestampTzGetDatum(time);
}

static void
put_worker(ReturnSetInfo *result, Oid database, WorkerKind kind, pid_t pid,
		   const WorkerStats *stats)
{
	Datum values[] = {
		ObjectIdGetDatum(database),
		CStringGetTextDatum(worker_duties[kind].name),
		Int32GetDatum(pid),
		CStringGetTextDatum(state_name(stats->state)),
		CStringGetTextDatum(stats->step),
		Int64GetDatum(stats->cycles),
		0,
		Float8GetDatum(stats->cycle_us / 1000.0),
		Int64GetDatum(stats->cycle_steps),
		Int64GetDatum(stats->cycle_rows),
		Int64GetDatum(stats->cycle_messages),
		Int64GetDatum(stats->cycle_bytes),
		Int64GetDatum(stats->rows),
		Int64GetDatum(stats->messages),
		Int64GetDatum(stats->bytes),
		0,
		Int64GetDatum(stats->errors),
		CStringGetTextDatum(stats->last_error),
		0,
		TimestampTzGetDatum(stats->stats_reset),
	};
	bool nulls[lengthof(values)] = {false};

	nulls[2] = pid == 0;
	nulls[4] = stats->step[0] == '\0';
	values[6] = time_or_null(stats->cycle_start, &nulls[6]);
	nulls[7] = stats->cycles == 0;
	values[15] = time_or_null(stats->oldest_due, &nulls[15]);
	nulls[17] = stats->last_error[0] == '\0';
	values[18] = time_or_null(stats->last_error_time, &nulls[18]);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * stat_workers(), columns: see sql/stats.sql
 */
Datum
stat_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < MAX_DATABASES; i++)
	{
		Database *database = &queen_shared->databases[i];

		for (int kind = 0; kind < WORKER_KINDS; kind++)
		{
			WorkerSlot *slot = &database->workers[kind];
			WorkerStats stats;
			Oid oid;
			pid_t pid;

			LWLockAcquire(&queen_shared->lock, LW_SHARED);
			oid = database->wanted ? database->oid : InvalidOid;
			pid = slot->pid;
			LWLockRelease(&queen_shared->lock);
			SpinLockAcquire(&slot->mutex);
			stats = slot->stats;
			SpinLockRelease(&slot->mutex);
			if (OidIsValid(oid))
				put_worker(result, oid, kind, pid, &stats);
		}
	}
	return (Datum) 0;
}

/*
 * stat_forget_max_lag()
 */
Datum
stat_forget_max_lag(PG_FUNCTION_ARGS)
{
	require_preload();
	stats_forget_max_lag();
	PG_RETURN_VOID();
}

/*
 * pg_stat_queen_reset()
 */
Datum
pg_stat_queen_reset(PG_FUNCTION_ARGS)
{
	require_preload();
	stats_reset();
	PG_RETURN_VOID();
}
