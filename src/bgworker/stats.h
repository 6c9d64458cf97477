/*
 * stats.h
 *		Counters per queue.
 *
 * A backend collects them while its transaction runs and adds them to shared
 * memory when it commits; what is rolled back was never counted.
 */
#ifndef QUEEN_STATS_H
#define QUEEN_STATS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "utils/uuid.h"

#include "shmem.h"

/* In the order of the columns of queen.stat_queues(). */
typedef enum QueueCounter
{
	COUNT_PUSHES,
	COUNT_PUSH_MESSAGES,
	COUNT_PUSH_RAW_BYTES,
	COUNT_PUSH_BYTES,
	COUNT_DUPLICATES,
	COUNT_POPS,
	COUNT_EMPTY_POPS,
	COUNT_POP_MESSAGES,
	COUNT_LEASES,
	COUNT_LEASES_EXPIRED,
	COUNT_ACKS_COMPLETED,
	COUNT_ACKS_FAILED,
	COUNT_ACKS_RETRIED,
	COUNT_ACKS_DEAD_LETTERED,
	COUNT_ACKS_DROPPED,
	COUNT_RETENTION_MESSAGES,
	COUNT_POP_LAG /* milliseconds, summed over the messages delivered */
} QueueCounter;

#define QUEUE_COUNTERS (COUNT_POP_LAG + 1)

typedef struct QueueStats
{
	QueueKey key; /* hash key */
	TimestampTz stats_reset;
	pg_atomic_uint64 counters[QUEUE_COUNTERS];
	pg_atomic_uint64 max_pop_lag; /* milliseconds, since stats_forget_max_lag() */
	pg_atomic_uint32 parked;	  /* pops that wait in front ends; for a moment it may be below 0 */
} QueueStats;

/* Shared memory. */
extern Size stats_shmem_size(void);
extern void stats_startup(int tranche, bool found);

/* Adds to a queue of this database, or to the common rest when there is no room for it. */
extern void stats_add(const pg_uuid_t *queue, const int64 *counters, int64 max_pop_lag);
extern void stats_add_parked(const pg_uuid_t *queue, int32 change);

/*
 * A copy of the counters of this database's queues; the last one, with a
 * database of InvalidOid, is the common rest.
 */
extern QueueStats *stats_copy(int *n);

/*
 * Forget queues that are no more.  A single queue leaves its counters to the
 * entry of the nil UUID, which sums up the deleted queues of a database.
 */
extern void stats_forget_queue(const pg_uuid_t *queue);
extern void stats_forget_database(Oid database);

/* Begins a new interval for the longest lag of this database's queues. */
extern void stats_forget_max_lag(void);

/* Sets the counters of this database, and the common rest, to zero. */
extern void stats_reset(void);

#endif
