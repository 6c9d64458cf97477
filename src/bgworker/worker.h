/*
 * worker.h
 *		The frame that all workers share.
 *
 * A duty is a function that does what is due and says when it wants to run
 * again.  It works in steps, each a transaction of its own; an error ends the
 * step, not the worker.
 */
#ifndef QUEEN_WORKER_H
#define QUEEN_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "shmem.h"

/* Returned by a cycle: sleep until the latch is set. */
#define WORKER_SLEEP LONG_MAX

typedef struct WorkerDuty
{
	const char *name;
	void (*start)(void); /* once, when connected; may be NULL */
	long (*cycle)(void); /* returns the milliseconds to the next one */
} WorkerDuty;

extern const WorkerDuty worker_duties[WORKER_KINDS];

typedef struct StepResult
{
	int64 rows;
	int64 messages;
	int64 bytes;
	bool more;
} StepResult;

typedef enum StepOutcome
{
	STEP_DONE,
	STEP_MORE,	/* another one is due at once */
	STEP_FAILED /* or still backing off */
} StepOutcome;

typedef struct Step
{
	const char *name;									 /* shown in pg_stat_activity */
	void (*work)(struct Step *step, StepResult *result); /* within a transaction */
	const char *sql;									 /* for the two works below */

	/* state of the frame */
	int failures;				/* in a row */
	int64 retry_at;				/* by clock_ms() */
	int batch_shift;			/* the batch is halved so often */
	char cause[LAST_ERROR_LEN]; /* of the last failure */
} Step;

/* Runs a step in a transaction of its own. */
extern StepOutcome worker_step(Step *step);

/* Repeats it until nothing more is due; false when it failed. */
extern bool worker_steps(Step *step);

/* Milliseconds before a step that failed may run again; 0 when it may. */
extern long worker_step_pause(const Step *step);

/*
 * The work of a step that is one query: $1 is the batch, the row answers rows,
 * messages, bytes and more.
 */
extern void worker_call_function(Step *step, StepResult *result);

/*
 * The work of a step that is one query, which answers since when the longest
 * overdue item has been waiting, or NULL.
 */
extern void worker_note_due(Step *step, StepResult *result);

/* Rows that the step may handle. */
extern int worker_batch(const Step *step);

/* For the views: since when the longest overdue item has been waiting, 0 for none. */
extern void worker_set_oldest_due(TimestampTz since);

extern Database *worker_database(void);
extern void worker_stats_reset(WorkerSlot *slot);

/* Sends the worker away, if there is one; the caller holds the lock of shared memory. */
extern void worker_signal_end(const WorkerSlot *slot);

/* Asks the postmaster for a worker; false when it has no room for one. */
extern bool worker_launch(Oid oid, const char *database, WorkerKind kind,
						  BackgroundWorkerHandle **handle);

#endif
