/*
 * pop.h
 *		GET /api/v1/pop/queue/:queue[/partition/:partition], and
 *		GET /api/v1/pop?namespace=&task=, a discovery
 *
 * A pop looks (one entry of a log_pop call), and either delivers what it got,
 * or answers 204, or parks until something wakes it to look again.
 */
#ifndef QUEEN_POP_H
#define QUEEN_POP_H

#include "db.h"
#include "http.h"
#include "waiters.h"

#include <event2/event_struct.h>
#include <zstd.h>

struct Worker;
typedef struct Pops Pops;
typedef struct PopBundle PopBundle; /* pops that look in one call */

/* Rows of one log_pop call, shared by the pops that it served. */
typedef struct PopRows
{
	PGresult *res;
	int users;
} PopRows;

typedef enum PopState
{
	POP_QUEUED,		/* in the queue: a look is to be sent */
	POP_LOOKING,	/* in a log_pop call, or creating the queue */
	POP_PARKED,		/* in its wait group's list */
	POP_DELIVERING, /* rows are being turned into the answer */
	POP_ANSWERED
} PopState;

typedef struct Pop
{
	struct Pop *prev, *next; /* in the list of its state */
	PopState state;
	Request *req;
	Pops *pops;

	/* what was asked; names point into the request */
	Span queue, partition, group;
	bool discovery;		  /* any queue with this namespace and task; queue is empty */
	Span namespace, task; /* either may be empty: any */
	int batch;
	int max_partitions;
	int lease_seconds;
	bool auto_ack;
	bool wait;
	bool start_new;		/* at first contact: after the newest message */
	int64_t start_from; /* at first contact: this time, INT64_MIN when not given */
	int64_t deadline;	/* monotonic milliseconds */
	Uuid lease_id;

	/* waiting */
	WaitGroup *wait_group; /* NULL unless wait */
	uint64_t wakes_seen;
	bool follows; /* it looks in the transaction of a push, and stands for no news of it yet */
	struct event timer; /* the deadline, while parked */
	bool woken;			/* it was parked before this look */
	bool probe;			/* and a timer woke it, not news */
	bool last_look;
	bool deferred; /* something is there, but not yet deliverable */
	bool provisioned;
	bool alone; /* a call failed: find out whether this one is to blame */
	bool gone;

	/* the answer */
	PopRows *rows;
	int row, end_row; /* rows left to deliver */
	Buf body;
	int n_messages;
	Uuid *claimed; /* partitions under lease */
	int n_claimed;
} Pop;

extern Pops *pops_new(struct Worker *worker);
extern void pops_free(Pops *pops);
extern void pop_handler(Request *req);
extern void discovery_handler(Request *req);

/* How many pops are ready to look, counted up to "max". */
extern int pops_ready(const Pops *pops, int max);

/* The next call for the read lane, which is to be submitted; NULL: no pop is ready. */
extern DbCall *pops_next_call(Pops *pops);

/* Answers those that cannot look: the lane is down.  Once per turn of the loop. */
extern void pops_dispatch(Pops *pops);

/*
 * A pop that is parked for messages can look for them in the transaction that
 * pushes them.  pops_follow() takes those that a push to the partition would
 * wake, and returns the bundle that has them: "bundle", or a new one for NULL,
 * which it stays if there are none.  The call of the bundle is to follow the
 * push's.
 */
extern PopBundle *pops_follow(Pops *pops, PopBundle *bundle, const Uuid *tenant, Span queue,
							  Span partition);
extern DbCall *pops_call(PopBundle *bundle);

/*
 * A partition has news.  "follower" is the call of a bundle whose pops have seen
 * them, or NULL: no other pop needs to look in place of these.
 */
extern void pops_wake_pushed(Pops *pops, const DbCall *follower, const Uuid *tenant, Span queue,
							 Span partition);
extern void pops_wake_partition(Pops *pops, const Uuid *tenant, Span queue, Span partition);
extern void pops_wake_queue(Pops *pops, const Uuid *queue_id); /* NULL: any queue */
extern void pops_wake_group(Pops *pops, const Uuid *tenant, Span queue, Span partition, Span group);

/* Answers every pop that waits with 204: the server is going away. */
extern void pops_drain(Pops *pops);
extern void pops_tick(Pops *pops);

/* pop_args.c: reads what the request asks for.  False when it is invalid; "error" says why. */
extern bool pop_read_args(Pop *pop, char *error, size_t error_size);

/* For waiters.c and deliver.c. */
extern bool pops_have_looked(PopBundle *bundle, const WaitGroup *group, Span partition);
extern void pop_look_again(Pop *pop, bool probe);
extern void pop_empty(Pop *pop, int64_t retry_ms);
extern void pop_reply(Pop *pop, int status, const char *error);
extern struct Worker *pops_worker(const Pops *pops);
extern ZSTD_DCtx *pops_dctx(const Pops *pops);

#endif
