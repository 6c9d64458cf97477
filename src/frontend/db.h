/*
 * db.h
 *		Connections to PostgreSQL: non-blocking, in pipeline mode, grouped in lanes.
 *
 * A lane is a set of connections for one kind of work, so that a lock wait or
 * a long statement of one kind holds up no other.  A call is one SQL function
 * call and, with the calls that follow it, one transaction: the last of them is
 * followed by a synchronisation point, and all are complete when that point was
 * passed, which is when their commit is.
 *
 * Everything here belongs to one thread.
 */
#ifndef QUEEN_DB_H
#define QUEEN_DB_H

#include "calls.h"
#include "pgbin.h"

#include <event2/event.h>

struct Conf;
typedef struct Db Db;
typedef struct DbCall DbCall;

typedef enum DbLaneId
{
	LANE_PUSH,	 /* fused pushes: they never wait for a lock */
	LANE_READ,	 /* pops and acknowledgements: they never wait either */
	LANE_WAIT,	 /* single calls that may wait for another session's lock */
	LANE_ADMIN,	 /* everything rare */
	LANE_HEALTH, /* health checks, which must not queue behind anything */
	LANE_LISTEN, /* no calls: notifications; in one thread of the process */
	N_LANES
} DbLaneId;

typedef struct DbError
{
	char sqlstate[6];	 /* empty when the connection failed */
	const char *message; /* never NULL */
	const char *column;	 /* COLUMN field of the error, or NULL */
	bool unknown;		 /* sent, and the answer never came: it may have committed */
} DbError;

/*
 * Called once per call, for those of a transaction in their order.  On success
 * "res" holds its rows and now belongs to the callee, and "error" is NULL; on
 * failure it is the other way round.  call->follower tells whether what follows
 * has been done in the same transaction after all.
 */
typedef void (*DbDone)(DbCall *call, PGresult *res, const DbError *error);

struct DbCall
{
	DbCall *next;	  /* in the queue of its lane */
	DbCall *follower; /* the next one of its transaction */
	DbLaneId lane;
	CallId id;
	DbDone done;
	void *ctx;
	PgArray params[CALL_MAX_PARAMS]; /* in binary, NULL where buf.data is NULL */
	int attempts;
	bool no_patience;	/* a lock timeout is not a reason to repeat it */
	int64_t deadline;	/* to be sent, monotonic milliseconds */
	int64_t give_up_at; /* waiting for locks */
	PGresult *result;	/* until the synchronisation point */
};

/* Receives the payload of each notification on queen_wake. */
typedef void (*DbNotify)(void *ctx, const char *payload);

/* What this process's sessions are called in notifications; never 0. */
extern int db_wake_origin(void);

/* "notify" NULL: this thread does not listen. */
extern Db *db_open(struct event_base *base, const struct Conf *conf, DbNotify notify, void *ctx);

/* Drops all connections for good: every call fails, and every lane is down. */
extern void db_shutdown(Db *db);
extern void db_free(Db *db);

extern DbCall *db_call_new(CallId id, DbDone done, void *ctx);
extern void db_call_free(DbCall *call); /* only of a call that was not submitted */
extern PgArray *db_call_array(DbCall *call, int param, Oid element);
extern void db_call_uuid(DbCall *call, int param, const Uuid *uuid);
extern void db_call_text(DbCall *call, int param, Span text);
extern void db_call_int(DbCall *call, int param, int32_t value);
extern void db_call_int64(DbCall *call, int param, int64_t value);
extern void db_call_bool(DbCall *call, int param, bool value);

/*
 * Makes "follower" the next call of the transaction of "call", which is not
 * submitted yet and is the last one so far.  When any of them fails, none has
 * done anything, and each is submitted again alone, this one to "lane".
 */
extern void db_call_follow(DbCall *call, DbLaneId lane, DbCall *follower);

/* Sends the call and its followers, or queues them until a connection of the lane is free. */
extern void db_submit(Db *db, DbLaneId lane, DbCall *call);

/* True when a call submitted now would be sent at once. */
extern bool db_lane_free(const Db *db, DbLaneId lane);

/* True when that would leave another connection idle. */
extern bool db_lane_spare(const Db *db, DbLaneId lane);

/* True when the lane has no connection and its last attempt to get one failed. */
extern bool db_lane_down(const Db *db, DbLaneId lane);

/* Number of connections that are up, that have a call in flight, and of calls that wait. */
extern void db_counts(const Db *db, int *up, int *active, int *waiting);

/* Time limits and reconnects; called about ten times a second. */
extern void db_tick(Db *db);

/* HTTP status for a failed call: the table of docs/internals.md. */
extern int db_error_status(const DbError *error);

#endif
