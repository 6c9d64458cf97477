/*
 * db.c
 *		Connections to PostgreSQL: non-blocking, in pipeline mode, grouped in lanes.
 */
#include "db.h"

#include "clock.h"
#include "conf.h"
#include "hosts.h"
#include "log.h"
#include "protocol.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define RECONNECT_MIN_MS 50
#define RECONNECT_MAX_MS 1000
#define QUEUE_TIMEOUT_MS 10000 /* a call that no connection took by then fails */
#define ANSWER_SLACK_MS 5000   /* beyond statement_timeout, the server is gone */
#define MAX_ATTEMPTS 4		   /* of a call that meets 40001 or 40P01 */
#define SHARED_LOCK_TIMEOUT_MS 200
#define MAX_ERROR 128 /* bytes of an error that are compared with the last one */

typedef enum DbConnState
{
	CONN_DOWN,		 /* until retry_at */
	CONN_CONNECTING, /* PQconnectPoll */
	CONN_SETUP,		 /* handshake and prepared statements in flight */
	CONN_READY
} DbConnState;

typedef struct DbLane DbLane;

typedef struct DbConn
{
	Db *db;
	DbLane *lane;
	DbConnState state;
	PGconn *pg;
	struct event *read_event;
	struct event *write_event;
	DbCall *call;	   /* in flight, with its followers */
	DbCall *answering; /* the one of these whose result is next */
	int64_t deadline;  /* of connecting, of setup, or of the calls */
	int64_t retry_at;
	int host;						/* the one that is tried or connected to */
	int tried;						/* hosts in vain since the last pause */
	int failures;					/* rounds through all hosts, and lost connections, in a row */
	char (*last_errors)[MAX_ERROR]; /* by host, since the last success */
} DbConn;

struct DbLane
{
	const Db *db;
	const char *name;
	DbConn *conns;
	int n_conns;
	DbCall *queue, **queue_tail;
};

struct Db
{
	struct event_base *base;
	const struct Conf *conf;
	Hosts hosts;
	int good_host; /* the last one that a connection was made to */
	DbLane lanes[N_LANES];
	DbNotify notify;
	void *notify_ctx;
	bool closing;
};

static void conn_start(DbConn *conn);
static void lane_run(DbLane *lane);

/* --- calls --------------------------------------------------------------- */

DbCall *
db_call_new(CallId id, DbDone done, void *ctx)
{
	DbCall *call = calloc(1, sizeof(*call));

	if (call == NULL)
		abort();
	call->id = id;
	call->done = done;
	call->ctx = ctx;
	return call;
}

PgArray *
db_call_array(DbCall *call, int param, Oid element)
{
	pgarray_begin(&call->params[param], element);
	return &call->params[param];
}

void
db_call_uuid(DbCall *call, int param, const Uuid *uuid)
{
	if (uuid)
		buf_append(&call->params[param].buf, uuid->bytes, 16);
}

void
db_call_text(DbCall *call, int param, Span text)
{
	if (text.ptr == NULL)
		return;
	buf_reserve(&call->params[param].buf, 1); /* an empty text is not NULL */
	buf_append(&call->params[param].buf, text.ptr, text.len);
}

void
db_call_int(DbCall *call, int param, int32_t value)
{
	uint32_t net = htonl((uint32_t) value);

	buf_append(&call->params[param].buf, &net, 4);
}

void
db_call_int64(DbCall *call, int param, int64_t value)
{
	uint64_t net = htobe64((uint64_t) value);

	buf_append(&call->params[param].buf, &net, 8);
}

void
db_call_bool(DbCall *call, int param, bool value)
{
	buf_append_char(&call->params[param].buf, value);
}

void
db_call_follow(DbCall *call, DbLaneId lane, DbCall *follower)
{
	follower->lane = lane;
	call->follower = follower;
}

void
db_call_free(DbCall *call)
{
	for (int i = 0; i < CALL_MAX_PARAMS; i++)
		buf_free(&call->params[i].buf);
	PQclear(call->result);
	free(call);
}

static void
call_fail(DbCall *call, const DbError *error)
{
	call->done(call, NULL, error);
	db_call_free(call);
}

/* All calls of a transaction. */
static void
calls_fail(DbCall *call, const DbError *error)
{
	while (call)
	{
		DbCall *follower = call->follower;

		call_fail(call, error);
		call = follower;
	}
}

static void
calls_fail_unavailable(DbCall *call, bool unknown)
{
	DbError error = {.message = unknown ? "database connection lost, outcome unknown"
										: "database not available",
					 .unknown = unknown};

	calls_fail(call, &error);
}

static void
call_fail_with_result(DbCall *call)
{
	const PGresult *res = call->result;
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
	DbError error = {.message = message ? message : "database call failed",
					 .column = PQresultErrorField(res, PG_DIAG_COLUMN_NAME)};

	snprintf(error.sqlstate, sizeof(error.sqlstate), "%s", sqlstate ? sqlstate : "XX000");
	call_fail(call, &error);
}

int
db_error_status(const DbError *error)
{
	static const struct
	{
		const char *prefix;
		int status;
	} table[] = {{"22023", 400}, {"P0002", 404}, {"08", 503},	 {"53", 503},
				 {"57", 503},	 {"55P03", 503}, {"25006", 503}, {"40", 503}};

	if (error->sqlstate[0] == '\0')
		return 503;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strncmp(error->sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
			return table[i].status;
	return 500;
}

/* --- lanes --------------------------------------------------------------- */

static void
lane_push(DbLane *lane, DbCall *call)
{
	call->deadline = clock_ms() + QUEUE_TIMEOUT_MS;
	call->next = NULL;
	*lane->queue_tail = call;
	lane->queue_tail = &call->next;
}

static DbCall *
lane_shift(DbLane *lane)
{
	DbCall *call = lane->queue;

	if (call)
	{
		lane->queue = call->next;
		if (lane->queue == NULL)
			lane->queue_tail = &lane->queue;
	}
	return call;
}

static DbConn *
lane_idle_conn(const DbLane *lane)
{
	for (int i = 0; i < lane->n_conns; i++)
		if (lane->conns[i].state == CONN_READY && lane->conns[i].call == NULL)
			return &lane->conns[i];
	return NULL;
}

bool
db_lane_free(const Db *db, DbLaneId id)
{
	return db->lanes[id].queue == NULL && lane_idle_conn(&db->lanes[id]) != NULL;
}

bool
db_lane_spare(const Db *db, DbLaneId id)
{
	const DbLane *lane = &db->lanes[id];
	int idle = 0;

	for (int i = 0; i < lane->n_conns; i++)
		idle += lane->conns[i].state == CONN_READY && lane->conns[i].call == NULL;
	return lane->queue == NULL && idle > 1;
}

static bool
lane_down(const DbLane *lane)
{
	bool failed = lane->db->closing;

	for (int i = 0; i < lane->n_conns; i++)
	{
		if (lane->conns[i].state == CONN_READY)
			return false;
		failed = failed || lane->conns[i].failures > 0;
	}
	return failed;
}

bool
db_lane_down(const Db *db, DbLaneId id)
{
	return lane_down(&db->lanes[id]);
}

void
db_counts(const Db *db, int *up, int *active, int *waiting)
{
	*up = *active = *waiting = 0;
	for (int i = 0; i < N_LANES; i++)
	{
		const DbLane *lane = &db->lanes[i];

		for (int j = 0; j < lane->n_conns; j++)
		{
			*up += lane->conns[j].state == CONN_READY;
			*active += lane->conns[j].call != NULL;
		}
		for (const DbCall *call = lane->queue; call; call = call->next)
			(*waiting)++;
	}
}

/* An argument that ran out of memory is cut short, and might be taken for a whole one. */
static bool
call_is_whole(const DbCall *call)
{
	for (int i = 0; i < CALL_MAX_PARAMS; i++)
		if (call->params[i].buf.failed)
			return false;
	return true;
}

void
db_submit(Db *db, DbLaneId id, DbCall *call)
{
	int64_t give_up_at = clock_ms() + db->conf->lock_timeout_ms;
	bool whole = true;

	call->lane = id;
	for (DbCall *each = call; each; each = each->follower)
	{
		each->give_up_at = give_up_at;
		whole = whole && call_is_whole(each);
	}
	if (!whole)
	{
		calls_fail(call, &(DbError){.sqlstate = "53200", .message = "out of memory"});
		return;
	}
	lane_push(&db->lanes[id], call);
	lane_run(&db->lanes[id]);
}

static void
lane_fail_all(DbLane *lane)
{
	DbCall *call;

	while ((call = lane_shift(lane)) != NULL)
		calls_fail_unavailable(call, false);
}

/* --- one connection ------------------------------------------------------ */

static void
conn_free_events(DbConn *conn)
{
	if (conn->read_event)
		event_free(conn->read_event);
	if (conn->write_event)
		event_free(conn->write_event);
	conn->read_event = conn->write_event = NULL;
}

/* The next host at once.  When all were tried, or a connection was lost, a pause first. */
static void
conn_schedule(DbConn *conn)
{
	int64_t delay;

	conn->retry_at = clock_ms();
	if (conn->state != CONN_READY && ++conn->tried < conn->db->hosts.n)
	{
		conn->host = (conn->host + 1) % conn->db->hosts.n;
		return;
	}
	conn->tried = 0;
	conn->failures++;

	/* Doubles up to the maximum, with jitter so that many front ends do not come at once. */
	delay = (int64_t) RECONNECT_MIN_MS << (conn->failures < 6 ? conn->failures - 1 : 5);
	if (delay > RECONNECT_MAX_MS)
		delay = RECONNECT_MAX_MS;
	conn->retry_at += delay / 2 + random() % (delay / 2 + 1);
}

static void
conn_log_failure(DbConn *conn, const char *why)
{
	char *last = conn->last_errors[conn->host];

	if (strncmp(why, last, MAX_ERROR - 1) == 0)
		return;
	snprintf(last, MAX_ERROR, "%s", why);
	log_event(LOG_LEVEL_WARN, "database connection failed", "lane", conn->lane->name, "host",
			  conn->pg ? PQhost(conn->pg) : "", "error", why, NULL);
}

/* Closes the connection; calls in flight end with an unknown outcome. */
static void
conn_fail(DbConn *conn, const char *why)
{
	DbCall *call = conn->call;

	if (why && !conn->db->closing)
		conn_log_failure(conn, why);
	conn_schedule(conn);
	conn_free_events(conn);
	PQfinish(conn->pg);
	conn->pg = NULL;
	conn->call = conn->answering = NULL;
	conn->state = CONN_DOWN;

	calls_fail_unavailable(call, true);
	if (lane_down(conn->lane))
		lane_fail_all(conn->lane);
}

static void
conn_fail_libpq(DbConn *conn)
{
	char message[512];

	snprintf(message, sizeof(message), "%s", conn->pg ? PQerrorMessage(conn->pg) : "out of memory");
	message[strcspn(message, "\n")] = '\0';
	conn_fail(conn, message);
}

static void
conn_flush(DbConn *conn)
{
	int pending = PQflush(conn->pg);

	if (pending < 0)
		conn_fail_libpq(conn);
	else if (pending > 0)
		event_add(conn->write_event, NULL);
}

/* Hands the call to libpq. */
static bool
conn_queue_call(DbConn *conn, DbCall *call)
{
	const CallSpec *spec = &call_specs[call->id];
	const char *values[CALL_MAX_PARAMS];
	int lengths[CALL_MAX_PARAMS];
	int formats[CALL_MAX_PARAMS];

	for (int i = 0; i < spec->n_params; i++)
	{
		values[i] = call->params[i].buf.data;
		lengths[i] = (int) call->params[i].buf.len;
		formats[i] = 1;
	}
	call->attempts++;
	return PQsendQueryPrepared(conn->pg, spec->name, spec->n_params, values, lengths, formats, 1);
}

/* Sends the calls of one transaction. */
static void
conn_send(DbConn *conn, DbCall *call)
{
	bool sent = true;

	conn->call = conn->answering = call;
	conn->deadline = clock_ms() + ANSWER_SLACK_MS;
	for (; call && sent; call = call->follower)
	{
		conn->deadline += conn->db->conf->statement_timeout_ms;
		sent = conn_queue_call(conn, call);
	}
	if (!sent || !PQpipelineSync(conn->pg))
		conn_fail_libpq(conn);
	else
		conn_flush(conn);
}

static void
lane_run(DbLane *lane)
{
	DbConn *conn;

	while (lane->queue && (conn = lane_idle_conn(lane)) != NULL)
		conn_send(conn, lane_shift(lane));
	if (lane->queue && lane_down(lane))
		lane_fail_all(lane);
}

/* Nothing was done: rolled back for the sake of others, or its turn to wait for a lock is over. */
static bool
call_worth_repeating(const DbCall *call, const char *sqlstate)
{
	if (strcmp(sqlstate, "40001") == 0 || strcmp(sqlstate, "40P01") == 0)
		return call->attempts < MAX_ATTEMPTS;
	return strcmp(sqlstate, "55P03") == 0 && !call->no_patience && clock_ms() < call->give_up_at;
}

static bool
all_succeeded(const DbCall *call)
{
	while (call && PQresultStatus(call->result) == PGRES_TUPLES_OK)
		call = call->follower;
	return call == NULL;
}

static void
call_succeeded(DbCall *call)
{
	PGresult *res = call->result;

	call->result = NULL;
	call->done(call, res, NULL);
	db_call_free(call);
}

/* Submits the call, alone, once more. */
static void
call_repeat(Db *db, DbCall *call)
{
	DbLane *lane = &db->lanes[call->lane];

	PQclear(call->result);
	call->result = NULL;
	call->follower = NULL;
	lane_push(lane, call);
	lane_run(lane);
}

static void
call_failed(Db *db, DbCall *call)
{
	const char *sqlstate = PQresultErrorField(call->result, PG_DIAG_SQLSTATE);

	if (sqlstate && call_worth_repeating(call, sqlstate))
		call_repeat(db, call);
	else
		call_fail_with_result(call);
}

/* The synchronisation point was passed: what the calls did is decided. */
static void
conn_calls_done(DbConn *conn)
{
	DbCall *call = conn->call;
	bool succeeded = all_succeeded(call);
	bool together = call->follower != NULL;

	conn->call = conn->answering = NULL;
	while (call)
	{
		DbCall *follower = call->follower;

		if (succeeded)
			call_succeeded(call);
		else if (together)
			call_repeat(conn->db, call);
		else
			call_failed(conn->db, call);
		call = follower;
	}
}

static void
warn_weak_durability(const PGresult *res)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	static const char *const names[] = {"fsync", "full_page_writes", "synchronous_commit"};

	if (atomic_flag_test_and_set(&warned))
		return;
	for (int i = 0; i < 3; i++)
		if (strcmp(PQgetvalue(res, 0, 3 + i), "off") == 0)
			log_event(LOG_LEVEL_WARN,
					  "the server runs with a setting that can lose acknowledged messages",
					  "setting", names[i], "value", "off", NULL);
}

/* The handshake's row.  NULL when the server fits, else why it does not. */
static const char *
check_handshake(DbConn *conn, const PGresult *res)
{
	int protocol = atoi(PQgetvalue(res, 0, 0));

	if (protocol < QUEEN_PROTOCOL)
		return "the extension is older than this front end: upgrade the extension (ALTER EXTENSION "
			   "queen UPDATE)";
	if (protocol > QUEEN_PROTOCOL)
		return "the extension is newer than this front end: upgrade the front end";
	if (atoi(PQgetvalue(res, 0, 2)) != PQbackendPID(conn->pg))
		return "a connection pooler is in between, which breaks prepared statements and session "
			   "settings: connect to PostgreSQL itself";
	warn_weak_durability(res);
	return NULL;
}

static void
explain_setup_error(DbConn *conn, const PGresult *res)
{
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	char message[512];

	if (sqlstate && (strcmp(sqlstate, "3F000") == 0 || strcmp(sqlstate, "42883") == 0))
		snprintf(message, sizeof(message),
				 "extension queen is missing or older than this front end in database \"%s\"",
				 PQdb(conn->pg));
	else
		snprintf(message, sizeof(message), "%s", PQresultErrorMessage(res));
	message[strcspn(message, "\n")] = '\0';
	conn_fail(conn, message);
}

static void
conn_ready(DbConn *conn)
{
	if (conn->failures > 0)
		log_event(LOG_LEVEL_INFO, "database connection established", "lane", conn->lane->name,
				  "host", PQhost(conn->pg), NULL);
	conn->state = CONN_READY;
	conn->failures = conn->tried = 0;
	memset(conn->last_errors, 0, (size_t) conn->db->hosts.n * MAX_ERROR);
	conn->db->good_host = conn->host;

	/* What was announced before is not known. */
	if (conn->lane == &conn->db->lanes[LANE_LISTEN])
		conn->db->notify(conn->db->notify_ctx, "*");
}

/* One result of the setup; false when the connection was given up. */
static bool
conn_setup_result(DbConn *conn, PGresult *res)
{
	const char *why;

	switch (PQresultStatus(res))
	{
		case PGRES_TUPLES_OK:
			why = check_handshake(conn, res);
			if (why == NULL)
				return true;
			conn_fail(conn, why);
			return false;
		case PGRES_COMMAND_OK:
			return true;
		case PGRES_PIPELINE_SYNC:
			conn_ready(conn);
			return true;
		default:
			explain_setup_error(conn, res);
			return false;
	}
}

/* An error after the last call's result is that of the commit: it takes its place. */
static void
conn_call_result(DbConn *conn, PGresult *res)
{
	if (PQresultStatus(res) == PGRES_PIPELINE_SYNC)
	{
		PQclear(res);
		conn_calls_done(conn);
		return;
	}
	PQclear(conn->answering->result);
	conn->answering->result = res;
}

/* Between the results of two commands. */
static void
conn_next_result(DbConn *conn)
{
	const DbCall *call = conn->answering;

	if (call && call->result && call->follower)
		conn->answering = call->follower;
}

/* What arrived on the listening connection. */
static void
conn_notifications(DbConn *conn)
{
	PGnotify *notification;

	while (conn->pg && (notification = PQnotifies(conn->pg)) != NULL)
	{
		if (conn->db->notify)
			conn->db->notify(conn->db->notify_ctx, notification->extra);
		PQfreemem(notification);
	}
}

static void
conn_read(evutil_socket_t fd, short what, void *arg)
{
	DbConn *conn = arg;

	(void) fd;
	(void) what;
	if (!PQconsumeInput(conn->pg))
	{
		conn_fail_libpq(conn);
		return;
	}
	conn_flush(conn);
	while (conn->pg && (conn->call || conn->state == CONN_SETUP) && !PQisBusy(conn->pg))
	{
		PGresult *res = PQgetResult(conn->pg);

		if (res == NULL)
		{
			if (PQstatus(conn->pg) == CONNECTION_BAD)
				conn_fail_libpq(conn);
			else
				conn_next_result(conn);
			continue;
		}
		if (conn->state == CONN_SETUP)
		{
			bool ok = conn_setup_result(conn, res);

			PQclear(res);
			if (!ok)
				return;
		}
		else
			conn_call_result(conn, res);
	}
	conn_notifications(conn);
	lane_run(conn->lane);
}

static void
conn_write(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	conn_flush(arg);
}

/*
 * Rows are not waited for where pops travel with pushes or acknowledgements,
 * tables may be.  Who carries pops along gives up soon and goes on without them;
 * alone it waits as long as others do, by turns (call_worth_repeating).
 */
static int64_t
conn_lock_timeout(const DbConn *conn)
{
	const DbLane *lanes = conn->db->lanes;
	int64_t timeout = conn->db->conf->lock_timeout_ms;
	bool shared = conn->lane == &lanes[LANE_PUSH] || conn->lane == &lanes[LANE_READ];

	return shared && timeout > SHARED_LOCK_TIMEOUT_MS ? SHARED_LOCK_TIMEOUT_MS : timeout;
}

/* Sends handshake, session settings and all prepared statements in one go. */
static bool
conn_send_setup(DbConn *conn)
{
	static const char *const handshake =
		"SELECT h.protocol, h.version, pg_catalog.pg_backend_pid(),"
		" pg_catalog.current_setting('fsync'),"
		" pg_catalog.current_setting('full_page_writes'),"
		" pg_catalog.current_setting('synchronous_commit'),"
		" pg_catalog.set_config('statement_timeout', $1, false),"
		" pg_catalog.set_config('lock_timeout', $2, false),"
		" pg_catalog.set_config('queen.wake_origin', $3, false),"
		" pg_catalog.set_config('default_transaction_isolation', 'read committed', false)"
		" FROM queen.log_handshake() AS h";
	char statement_timeout[24];
	char lock_timeout[24];
	char wake_origin[24];
	const char *values[] = {statement_timeout, lock_timeout, wake_origin};

	snprintf(statement_timeout, sizeof(statement_timeout), "%lld",
			 (long long) conn->db->conf->statement_timeout_ms);
	snprintf(lock_timeout, sizeof(lock_timeout), "%lld", (long long) conn_lock_timeout(conn));
	snprintf(wake_origin, sizeof(wake_origin), "%d", db_wake_origin());
	if (PQsetnonblocking(conn->pg, 1) < 0 || !PQenterPipelineMode(conn->pg) ||
		!PQsendQueryParams(conn->pg, handshake, 3, NULL, values, NULL, NULL, 0))
		return false;
	if (conn->lane == &conn->db->lanes[LANE_LISTEN])
		return PQsendQueryParams(conn->pg, "LISTEN queen_wake", 0, NULL, NULL, NULL, NULL, 0) &&
			   PQpipelineSync(conn->pg);
	for (int i = 0; i < N_CALLS; i++)
		if (!PQsendPrepare(conn->pg, call_specs[i].name, call_specs[i].sql, call_specs[i].n_params,
						   call_specs[i].types))
			return false;
	return PQpipelineSync(conn->pg);
}

static void
conn_connected(DbConn *conn)
{
	conn_free_events(conn);
	conn->read_event =
		event_new(conn->db->base, PQsocket(conn->pg), EV_READ | EV_PERSIST, conn_read, conn);
	conn->write_event = event_new(conn->db->base, PQsocket(conn->pg), EV_WRITE, conn_write, conn);
	event_add(conn->read_event, NULL);
	conn->state = CONN_SETUP;
	if (!conn_send_setup(conn))
		conn_fail_libpq(conn);
	else
		conn_flush(conn);
}

static void
conn_poll(evutil_socket_t fd, short what, void *arg)
{
	DbConn *conn = arg;
	PostgresPollingStatusType status = PQconnectPoll(conn->pg);

	(void) fd;
	(void) what;
	conn_free_events(conn); /* the socket may be another one by now */
	if (status == PGRES_POLLING_OK)
		conn_connected(conn);
	else if (status == PGRES_POLLING_FAILED)
		conn_fail_libpq(conn);
	else
	{
		conn->read_event =
			event_new(conn->db->base, PQsocket(conn->pg),
					  status == PGRES_POLLING_READING ? EV_READ : EV_WRITE, conn_poll, conn);
		event_add(conn->read_event, NULL);
	}
}

static void
ignore_notice(void *arg, const PGresult *res)
{
	(void) arg;
	(void) res;
}

/* A round through the hosts starts with the one that was good. */
static const Host *
conn_pick_host(DbConn *conn)
{
	if (conn->tried == 0)
		conn->host = conn->db->good_host;
	return &conn->db->hosts.list[conn->host];
}

static void
conn_start(DbConn *conn)
{
	const Db *db = conn->db;
	const Host *host = conn_pick_host(conn);

	/* Later keywords win, so the connection string may set any but the name. */
	const char *keywords[] = {"target_session_attrs",
							  "fallback_application_name",
							  "dbname",
							  "host",
							  "hostaddr",
							  "port",
							  "client_encoding",
							  NULL};
	const char *values[] = {"read-write",  "queen-frontend", db->conf->dsn, host->name,
							host->address, host->port,		 "UTF8",		NULL};

	conn->state = CONN_CONNECTING;
	conn->deadline = clock_ms() + db->hosts.timeout_ms;
	conn->pg = PQconnectStartParams(keywords, values, 1);
	if (conn->pg == NULL || PQstatus(conn->pg) == CONNECTION_BAD)
	{
		conn_fail_libpq(conn);
		return;
	}
	PQsetNoticeReceiver(conn->pg, ignore_notice, NULL);
	conn->read_event = event_new(conn->db->base, PQsocket(conn->pg), EV_WRITE, conn_poll, conn);
	event_add(conn->read_event, NULL);
}

/* --- all of them --------------------------------------------------------- */

int
db_wake_origin(void)
{
	static atomic_int origin;
	int none = 0;
	Uuid random;

	/* The last bytes of a version 7 UUID are random. */
	uuid_v7(&random);
	atomic_compare_exchange_strong(
		&origin, &none, (random.bytes[13] << 16 | random.bytes[14] << 8 | random.bytes[15]) + 1);
	return atomic_load(&origin);
}

Db *
db_open(struct event_base *base, const struct Conf *conf, DbNotify notify, void *ctx)
{
	const char *const names[N_LANES] = {"push", "read", "wait", "admin", "health", "listen"};
	const int64_t sizes[N_LANES] = {
		conf->push_connections, conf->read_connections, conf->wait_connections, 1, 1,
		notify ? 1 : 0};
	Db *db = calloc(1, sizeof(*db));

	db->base = base;
	db->conf = conf;
	hosts_read(&db->hosts, conf->dsn);
	db->notify = notify;
	db->notify_ctx = ctx;
	for (int i = 0; i < N_LANES; i++)
	{
		DbLane *lane = &db->lanes[i];

		lane->db = db;
		lane->name = names[i];
		lane->n_conns = (int) sizes[i];
		lane->queue_tail = &lane->queue;
		lane->conns = calloc((size_t) lane->n_conns, sizeof(DbConn));
		for (int j = 0; j < lane->n_conns; j++)
		{
			lane->conns[j].db = db;
			lane->conns[j].lane = lane;
			lane->conns[j].last_errors = calloc((size_t) db->hosts.n, MAX_ERROR);
			conn_start(&lane->conns[j]);
		}
	}
	return db;
}

static void
lane_drop_overdue(DbLane *lane, int64_t now)
{
	while (lane->queue && lane->queue->deadline < now)
		calls_fail_unavailable(lane_shift(lane), false);
}

void
db_tick(Db *db)
{
	int64_t now = clock_ms();

	for (int i = 0; i < N_LANES; i++)
	{
		DbLane *lane = &db->lanes[i];

		for (int j = 0; j < lane->n_conns; j++)
		{
			DbConn *conn = &lane->conns[j];

			if (conn->state == CONN_DOWN && now >= conn->retry_at)
				conn_start(conn);
			else if (conn->state != CONN_DOWN && (conn->state != CONN_READY || conn->call) &&
					 now > conn->deadline)
				conn_fail(conn, "the server does not answer");
		}
		lane_drop_overdue(lane, now);
	}
}

void
db_shutdown(Db *db)
{
	db->closing = true;
	for (int i = 0; i < N_LANES; i++)
	{
		DbLane *lane = &db->lanes[i];

		for (int j = 0; j < lane->n_conns; j++)
			if (lane->conns[j].state != CONN_DOWN)
				conn_fail(&lane->conns[j], NULL);
		lane_fail_all(lane);
	}
}

void
db_free(Db *db)
{
	for (int i = 0; i < N_LANES; i++)
	{
		for (int j = 0; j < db->lanes[i].n_conns; j++)
			free(db->lanes[i].conns[j].last_errors);
		free(db->lanes[i].conns);
	}
	hosts_free(&db->hosts);
	free(db);
}
