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

long
sidecar_purge_cycle(void)
{
	worker_steps(&purge_step);
	return queen_sidecar_purge_interval;
}
