/*
 * worker.h
 *		One thread of the front end, a world of its own: event loop, HTTP daemon,
 *		database connections, messages being fused, parked pops.
 *
 * Threads share nothing on the path of a message.  What crosses is only the
 * hint that a queue has news, through worker_wake_others().
 */
#ifndef QUEEN_WORKER_H
#define QUEEN_WORKER_H

#include "conf.h"
#include "db.h"
#include "http.h"
#include "inflight.h"
#include "metrics.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>

struct Fusion;
struct Packer;
struct Pops;
struct Acks;
struct Auth;

typedef struct WorkerHint
{
	struct WorkerHint *next;
	enum
	{
		HINT_PARTITION, /* pushed to through another thread */
		HINT_QUEUE,		/* named by a notification */
		HINT_ALL
	} kind;
	Uuid id; /* of the tenant, or of the queue */
	size_t queue_len, partition_len;
	char names[]; /* queue, then partition */
} WorkerHint;

typedef struct Worker
{
	int id;
	const struct Conf *conf;
	struct event_base *base;
	Http *http;
	bool http_pending; /* http_run() has something to do */
	Db *db;
	struct Fusion *fusion; /* pushes */
	struct Pops *pops;
	struct Acks *acks;
	InFlight reads; /* requests of these two in calls of the read lane */
	struct Auth *auth;
	struct Crypt *crypt; /* NULL: no key */
	struct Packer *packer;
	Metrics metrics;
	struct Reports *reports;
	struct Drain *drain;	  /* of the spool; in one thread of the process */
	int64_t tick_due;		  /* monotonic milliseconds */
	int64_t parked_report_at; /* monotonic milliseconds */
	bool parked_reported;	  /* the last report was not empty */

	pthread_t thread;
	struct event *tick;
	struct event *hint_event;
	int hint_fd; /* eventfd: hints, or the order to stop */
	pthread_mutex_t hint_lock;
	WorkerHint *hints;		  /* protected by hint_lock */
	struct PushItem *spooled; /* back from the spool, latest first; protected by hint_lock */
	int spooling;			  /* messages that the spool still has */

	atomic_bool stop; /* set by workers_stop(), then seen as "draining" */
	bool draining;	  /* finish what is there */
	bool closing;	  /* the database is gone for good: nothing can be begun */
	int64_t drain_deadline;
} Worker;

extern Worker *workers;
extern int n_workers;
extern int64_t process_start_ms; /* monotonic */

/* Tells the other threads that a partition may have something for their parked pops. */
extern void worker_wake_others(Worker *worker, const Uuid *tenant, Span queue, Span partition);

/* A queue, or any queue (id NULL), may have something for the parked pops of all threads. */
extern void worker_wake_queue(Worker *worker, const Uuid *queue_id);

/*
 * Hands a message back to its thread: the spool has flushed it, or has failed.
 * Called by the spool's thread.
 */
extern void worker_spooled(Worker *worker, struct PushItem *item);

/* Opens the workers on one listening socket and starts their threads. */
extern bool workers_start(const struct Conf *conf, int listen_fd);

/* Asks every thread to drain and stop; workers_running() falls to 0 when they have. */
extern void workers_stop(void);
extern int workers_running(void);
extern void workers_join(void);

#endif
