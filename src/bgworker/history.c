/*
 * history.c
 *		Writes what the counters gained to the history table.
 *
 * It also frees the places of deleted queues in the table of counters, after
 * their last row of history was written.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/uuid.h"

#include "gucs.h"
#include "history.h"
#include "stats.h"
#include "worker.h"

static Step history_step = {
	.name = "queen.history_step",
	.work = worker_call_function,
	.sql = "SELECT rows, messages, bytes, more FROM queen.history_step($1)",
};

/* The counted queues of this database, as an array. */
static Datum
counted_queues(void)
{
	int n;
	QueueStats *stats = stats_copy(&n);
	Datum *ids = palloc(n * sizeof(Datum));

	n--; /* the last one is no queue */
	for (int i = 0; i < n; i++)
		ids[i] = UUIDPGetDatum(&stats[i].key.queue);
	return PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}

/* The statement's snapshot is younger than what it is asked about: a queue is seen, or gone. */
static void
forget_deleted(Step *step, StepResult *result)
{
	Oid types[] = {UUIDARRAYOID};
	Datum values[] = {counted_queues()};

	SPI_execute_with_args("SELECT c.id FROM pg_catalog.unnest($1) AS c (id)"
						  " WHERE NOT EXISTS (SELECT FROM queen.queues AS q WHERE q.id = c.id"
						  " AND q.deleted_at IS NULL)",
						  1, types, values, NULL, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool isnull;
		Datum id = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);

		stats_forget_queue(DatumGetUUIDP(id));
	}
}

static Step forget_step = {.name = "forget deleted queues", .work = forget_deleted};

long
history_cycle(void)
{
	worker_steps(&history_step);
	worker_steps(&forget_step);
	return queen_history_interval * 1000L;
}
