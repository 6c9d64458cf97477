/*
 * drain.h
 *		Stores what the spool has kept, in the order in which it came.
 *
 * One thread of the process does it, when the database is there and pushes
 * are not under maintenance.
 */
#ifndef QUEEN_DRAIN_H
#define QUEEN_DRAIN_H

struct Worker;
typedef struct Drain Drain;

extern Drain *drain_new(struct Worker *worker);
extern void drain_free(Drain *drain); /* NULL is none */

/* Goes on if it can; called about ten times a second. */
extern void drain_tick(Drain *drain);

#endif
