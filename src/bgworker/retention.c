/*
 * retention.c
 *		Deletes old messages, unused partitions and what deleted queues left.
 *
 * The SQL functions know what is due and how to delete it; a step locks one
 * partition at most.
 */
#include "postgres.h"

#include "clock.h"
#include "gucs.h"
#include "retention.h"
#include "worker.h"

/* A partition is unused for days before it goes: no need to look all the time. */
#define CLEANUP_INTERVAL_MS 60000

static Step retention_step = {
	.name = "queen.retention_step",
	.work = worker_call_function,
	.sql = "SELECT rows, messages, bytes, more FROM queen.retention_step($1)",
};
static Step cleanup_step = {
	.name = "queen.partition_cleanup_step",
	.work = worker_call_function,
	.sql = "SELECT rows, messages, bytes, more FROM queen.partition_cleanup_step($1)",
};
static Step drain_step = {
	.name = "queen.log_drain_step",
	.work = worker_call_function,
	.sql = "SELECT n::bigint, 0::bigint, 0::bigint, n > 0 FROM queen.log_drain_step($1) AS n",
};
static Step due_step = {
	.name = "look for overdue partitions",
	.work = worker_note_due,
	.sql = "SELECT CASE WHEN d.due <= clock_timestamp() THEN d.due END"
		   " FROM (SELECT min(retention_at) AS due FROM queen.log_due) AS d",
};

long
retention_cycle(void)
{
	static int64 next_cleanup = 0;

	if (worker_steps(&retention_step))
		worker_steps(&due_step);
	if (clock_ms() >= next_cleanup)
	{
		worker_steps(&cleanup_step);
		next_cleanup = clock_ms() + CLEANUP_INTERVAL_MS;
	}
	worker_steps(&drain_step);
	return queen_retention_interval;
}
