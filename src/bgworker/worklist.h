/*
 * worklist.h
 *		Which partitions are worth a look, per queue and consumer group.
 *
 * A pop from any partition of a queue takes them from here instead of
 * searching the tables.  The list may name partitions with nothing to deliver:
 * a pop verifies what it takes.  It may miss one only until a walk through the
 * queue's partitions, of which each pop does a step while one is due, finds it.
 * So nothing depends on the list but the time that a pop takes.
 *
 * It is empty after a start of the server, and there is none without the
 * preload.  A group has a list from its first pop on until it has not popped
 * for a while.
 */
#ifndef QUEEN_WORKLIST_H
#define QUEEN_WORKLIST_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* A walk through the partitions by the time of their last write. */
typedef struct Walk
{
	uint32 number; /* changes whenever another walk begins */
	bool running;
	bool met;			  /* something that is pending */
	TimestampTz began;	  /* no writer that is not seen began before; DT_NOEND: not known yet */
	TimestampTz position; /* what was written until then has been looked at; DT_NOBEGIN: nothing */
	TimestampTz ended;	  /* when the last one did */
} Walk;

typedef enum WorkTaken
{
	WORK_TAKEN,
	WORK_NONE,
	WORK_NO_LIST /* the group has none, or one that is full: search the tables */
} WorkTaken;

/* Shared memory. */
extern Size worklist_shmem_size(void);
extern void worklist_startup(int tranche);

/* A group is known by a hash of its name; never 0. */
extern uint64 worklist_group(const char *name, Size len);

/* News of this database; of what was written, for the groups that have not seen it. */
extern void worklist_written(const pg_uuid_t *queue, const pg_uuid_t *partition,
							 bool (*has_seen)(const void *arg, uint64 group), const void *arg);
extern void worklist_ready(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition);
extern void worklist_park(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition,
						  TimestampTz until, bool lease);

/* A lease has ended with nothing behind it; true when there may be something now. */
extern bool worklist_lease_done(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition);

/* Cursors or settings changed by other means: walk again, before any pop finds nothing. */
extern void worklist_doubt(const pg_uuid_t *queue);
extern void worklist_forget_database(Oid database);

/*
 * Takes a partition off the list, the one that has been ready longest.  Whoever
 * takes one gives it back with one of the functions above unless there is nothing
 * in it.
 */
extern WorkTaken worklist_take(const pg_uuid_t *queue, uint64 group, pg_uuid_t *partition);

/* When the next one will be ready; DT_NOEND: none is known. */
extern TimestampTz worklist_next(const pg_uuid_t *queue, uint64 group);

/* A copy of the walk that is due; false when none is.  "complete": nothing is missing. */
extern bool worklist_walk(const pg_uuid_t *queue, uint64 group, Walk *walk, bool *complete);

/*
 * Enters what a step of that walk has met.  False when there is no room for it:
 * the step ends before it.
 */
extern bool worklist_met(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition,
						 TimestampTz until);

/*
 * The walk has come to its position, or to its end.  True when this call ended it;
 * then "walk" says what all its steps have met.
 */
extern bool worklist_walked(const pg_uuid_t *queue, uint64 group, Walk *walk, bool end);

#endif
