/*
 * waiters.h
 *		Parked pops, and what wakes them.
 *
 * A parked pop holds no database connection.  It is woken by a push or a
 * released lease that this process knows of, or else by a timer: nothing that
 * is deliverable waits longer than the fallback interval (poll-max).
 *
 * One wake-up of a partition wakes one pop of each consumer group: a partition
 * goes to one of them anyway.
 *
 * A discovery waits for queues that need not exist yet, so every push of its
 * tenant may be its news: it looks, but not more often than every few
 * milliseconds.
 */
#ifndef QUEEN_WAITERS_H
#define QUEEN_WAITERS_H

#include "span.h"
#include "uuid.h"

#include <stdint.h>

struct Worker;
struct Pop;
struct PopBundle;
typedef struct Waiters Waiters;
typedef struct WaitGroup WaitGroup;

extern Waiters *waiters_new(struct Worker *worker);
extern void waiters_free(Waiters *waiters);

/*
 * The waiting place of one consumer group on one queue, for one partition or
 * (partition ptr NULL) for any.  Joined for as long as a pop may park.
 */
extern WaitGroup *waiters_join(Waiters *waiters, const Uuid *tenant, Span queue, Span partition,
							   Span group);
extern WaitGroup *waiters_join_discovery(Waiters *waiters, const Uuid *tenant, Span namespace,
										 Span task, Span group);
extern void waiters_leave(WaitGroup *group);

/*
 * Counts the wake-ups.  A pop notes the number before it looks; if it changed
 * when the look came back empty, the look may have been too early.
 */
extern uint64_t waiters_wakes(const WaitGroup *group);

/* The id of the group's queue, which an empty look tells: notifications name queues by it. */
extern void waiters_know_queue(WaitGroup *group, const Uuid *queue_id);

/*
 * Parks the pop.  "retry_ms" is when something known becomes deliverable, -1
 * when nothing is.  A pop that was woken in vain keeps its place in front.
 */
extern void waiters_park(WaitGroup *group, struct Pop *pop, int64_t retry_ms, bool in_front);
extern void waiters_unpark(WaitGroup *group, struct Pop *pop);

/* News: wakes the next pop of the group, if any is parked. */
extern void waiters_wake(WaitGroup *group);

/*
 * A partition has something new: for all groups, or for one.  Where a pop of
 * "looked" (NULL: none) has seen it, no other one of its group need look.
 */
extern void waiters_wake_partition(Waiters *waiters, struct PopBundle *looked, const Uuid *tenant,
								   Span queue, Span partition);
extern void waiters_wake_one_group(Waiters *waiters, const Uuid *tenant, Span queue, Span partition,
								   Span group);

/*
 * Calls fn for the pops that something new in the partition would wake,
 * discoveries aside; fn may unpark them.
 */
extern void waiters_next(Waiters *waiters, const Uuid *tenant, Span queue, Span partition,
						 void (*fn)(void *ctx, struct Pop *pop), void *ctx);

/* A queue has something new somewhere, or any queue may (id NULL). */
extern void waiters_wake_queue(Waiters *waiters, const Uuid *queue_id);

/* Calls fn for every parked pop, which may unpark it. */
extern void waiters_each(Waiters *waiters, void (*fn)(struct Pop *pop));

extern int waiters_parked(const Waiters *waiters);

/* Calls fn for every place with parked pops on a queue, which may have several places. */
extern void waiters_count(const Waiters *waiters,
						  void (*fn)(void *ctx, const Uuid *tenant, Span queue, int parked),
						  void *ctx);

#endif
