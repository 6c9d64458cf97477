/*
 * pgq.c
 *		PgQ: events are inserted by SQL, a batch of them in one transaction; one
 *		consumer reads the batches that the ticker cuts.
 *
 * The ticker runs here, as often as it is useful, in place of pgqd.
 */
#include "peer.h"

#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONSUMER "bench"
#define TICK_US 100000
#define PAUSE_US 2000

typedef struct Connection
{
	PGconn *conn;
	const char *queue;
} Connection;

static PGconn *
connect_to_server(void)
{
	PGconn *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
		peer_fail("connect", PQerrorMessage(conn));
	return conn;
}

static PGresult *
query(PGconn *conn, const char *text, int n, const char *const *values)
{
	PGresult *result = PQexecParams(conn, text, n, NULL, values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		peer_fail(text, PQerrorMessage(conn));
	return result;
}

static void *
tick(void *arg)
{
	PGconn *conn = arg;

	while (true)
	{
		PQclear(query(conn, "SELECT pgq.ticker()", 0, NULL));
		usleep(TICK_US);
	}
	return NULL;
}

/* A consumer sees what comes after it has registered, so it does at once. */
void
peer_create(const char *queue)
{
	PGconn *conn = connect_to_server();
	const char *values[] = {queue, CONSUMER};
	pthread_t ticker;

	PQclear(query(conn, "SELECT pgq.create_queue($1)", 1, values));
	PQclear(query(conn, "SELECT pgq.register_consumer($1, $2)", 2, values));
	pthread_create(&ticker, NULL, tick, conn);
}

void *
peer_connect(const char *queue, int batch, bool acknowledge)
{
	Connection *connection = calloc(1, sizeof(*connection));
	PGresult *result;

	(void) batch; /* batches are what lies between two ticks */
	(void) acknowledge;
	connection->conn = connect_to_server();
	connection->queue = queue;
	result = PQprepare(connection->conn, "insert", "SELECT pgq.insert_event($1, 'message', $2)", 0,
					   NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		peer_fail("prepare", PQerrorMessage(connection->conn));
	PQclear(result);
	return connection;
}

/* One pipeline, one transaction. */
void
peer_push(void *arg, const Span *messages, int n)
{
	Connection *connection = arg;
	PGconn *conn = connection->conn;
	ExecStatusType status;

	PQenterPipelineMode(conn);
	for (int i = 0; i < n; i++)
	{
		const char *values[] = {connection->queue, messages[i].ptr};
		int lengths[] = {0, (int) messages[i].len};
		int formats[] = {0, 1};

		if (!PQsendQueryPrepared(conn, "insert", 2, values, lengths, formats, 0))
			peer_fail("insert", PQerrorMessage(conn));
	}
	PQpipelineSync(conn);
	do
	{
		PGresult *result = PQgetResult(conn);

		status = result ? PQresultStatus(result) : PGRES_TUPLES_OK;
		if (status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC)
			peer_fail("insert", PQerrorMessage(conn));
		PQclear(result);
	} while (status != PGRES_PIPELINE_SYNC);
	PQexitPipelineMode(conn);
}

int
peer_consume(void *arg)
{
	Connection *connection = arg;
	const char *values[] = {connection->queue, CONSUMER};
	PGresult *batch = query(connection->conn, "SELECT pgq.next_batch($1, $2)", 2, values);
	int n = 0;

	if (PQgetisnull(batch, 0, 0))
		usleep(PAUSE_US);
	else
	{
		const char *id[] = {PQgetvalue(batch, 0, 0)};
		PGresult *events = query(connection->conn, "SELECT * FROM pgq.get_batch_events($1)", 1, id);

		n = PQntuples(events);
		PQclear(events);
		PQclear(query(connection->conn, "SELECT pgq.finish_batch($1)", 1, id));
	}
	PQclear(batch);
	return n;
}
