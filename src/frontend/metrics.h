/*
 * metrics.h
 *		Counters of one worker: written by its thread only, read by any.
 */
#ifndef QUEEN_METRICS_H
#define QUEEN_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

typedef enum Metric
{
	METRIC_REQUESTS,
	METRIC_ERRORS_4XX,
	METRIC_ERRORS_5XX,
	METRIC_PUSH_REQUESTS,
	METRIC_PUSH_MESSAGES, /* stored */
	METRIC_PUSH_DUPLICATES,
	METRIC_PUSH_CALLS,	  /* database transactions of pushes */
	METRIC_PUSH_SEGMENTS, /* sent in them */
	METRIC_POP_REQUESTS,
	METRIC_POP_MESSAGES,
	METRIC_ACK_REQUESTS,
	METRIC_ACK_MESSAGES,
	METRIC_DB_ERRORS,
	METRIC_CORRUPT_SEGMENTS,
	METRIC_WAITING,			/* gauge: pops that may park, or have */
	METRIC_PARKED,			/* gauge: pops parked now */
	METRIC_LOOP_LAG_US,		/* gauge: how late the loop is lately, on average */
	METRIC_LOOP_LAG_MAX_US, /* gauge: and at most, in about a minute */
	METRIC_DB_UP,			/* gauge: database connections */
	METRIC_DB_ACTIVE,		/* gauge: those with a call in flight */
	METRIC_DB_WAITING,		/* gauge: calls that wait for one */
	N_METRICS
} Metric;

typedef struct Metrics
{
	_Atomic uint64_t values[N_METRICS];
} Metrics;

static inline void
metrics_add(Metrics *metrics, Metric metric, uint64_t n)
{
	atomic_fetch_add_explicit(&metrics->values[metric], n, memory_order_relaxed);
}

static inline void
metrics_set(Metrics *metrics, Metric gauge, uint64_t value)
{
	atomic_store_explicit(&metrics->values[gauge], value, memory_order_relaxed);
}

static inline uint64_t
metrics_get(const Metrics *metrics, Metric metric)
{
	return atomic_load_explicit(&metrics->values[metric], memory_order_relaxed);
}

static inline void
metrics_count_status(Metrics *metrics, int status)
{
	metrics_add(metrics, METRIC_REQUESTS, 1);
	if (status >= 500)
		metrics_add(metrics, METRIC_ERRORS_5XX, 1);
	else if (status >= 400)
		metrics_add(metrics, METRIC_ERRORS_4XX, 1);
}

/* Sum over all workers. */
extern uint64_t metrics_total(Metric metric);

/* Memory of the process that is resident, bytes. */
extern long metrics_resident_bytes(void);

#endif
