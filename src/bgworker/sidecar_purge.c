/*
 * sidecar_purge.c
 *		Deletes hashes of transaction ids that nothing needs any more.
 */
#include "postgres.h"

#include "gucs.h"
#include "sidecar_purge.h"
#include "worker.h"

static Step purge_step = {
	.name = "queen.sidecar_purge_step",
	.work = worker_call_function,
	.sql = "SELECT rows, messages, bytes, more FROM queen.sidecar_purge_step($1)",
};
static Step due_step = {
	.name = "look for overdue partitions",
	.work = worker_note_due,
	.sql = "SELECT CASE WHEN d.due <= clock_timestamp() THEN d.due END"
		   " FROM (SELECT min(purge_at) AS due FROM queen.log_due) AS d",
};

long
sidecar_purge_cycle(void)
{
	if (worker_steps(&purge_step))
		worker_steps(&due_step);
	return queen_sidecar_purge_interval;
}
