/*
 * nats.c
 *		NATS JetStream: a stream in files, publishing awaits the server's
 *		acknowledgement; consumers pull batches.
 *
 * BENCH_PEER_PORT says where the server listens on the loopback interface.
 */
#include "peer.h"

#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 200

typedef struct Connection
{
	natsConnection *conn;
	jsCtx *js;
	natsSubscription *subscription;
	const char *subject;
	int batch;
	bool acknowledge;
} Connection;

static void
check(natsStatus status, const char *what)
{
	if (status != NATS_OK)
		peer_fail(what, natsStatus_GetText(status));
}

static void
open_connection(Connection *connection, const char *queue)
{
	char url[64];

	snprintf(url, sizeof(url), "nats://127.0.0.1:%s", peer_environment("BENCH_PEER_PORT"));
	check(natsConnection_ConnectTo(&connection->conn, url), "connect");
	check(natsConnection_JetStream(&connection->js, connection->conn, NULL), "JetStream");
	connection->subject = queue;
}

void
peer_create(const char *queue)
{
	Connection connection = {0};
	const char *subjects[] = {queue};
	jsStreamConfig config;

	open_connection(&connection, queue);
	jsStreamConfig_Init(&config);
	config.Name = queue;
	config.Subjects = subjects;
	config.SubjectsLen = 1;
	config.Storage = js_FileStorage;
	check(js_AddStream(NULL, connection.js, &config, NULL, NULL), "stream");
	jsCtx_Destroy(connection.js);
	natsConnection_Destroy(connection.conn);
}

void *
peer_connect(const char *queue, int batch, bool acknowledge)
{
	Connection *connection = calloc(1, sizeof(*connection));
	jsSubOptions options_;

	open_connection(connection, queue);
	connection->batch = batch;
	connection->acknowledge = acknowledge;
	if (batch == 0)
		return connection;
	jsSubOptions_Init(&options_);
	options_.Config.AckPolicy = acknowledge ? js_AckExplicit : js_AckNone;
	options_.Config.MaxAckPending = 100000;
	check(js_PullSubscribe(&connection->subscription, connection->js, queue, "bench", NULL,
						   &options_, NULL),
		  "subscribe");
	return connection;
}

void
peer_push(void *arg, const Span *messages, int n)
{
	Connection *connection = arg;

	if (n == 1)
	{
		check(js_Publish(NULL, connection->js, connection->subject, messages[0].ptr,
						 (int) messages[0].len, NULL, NULL),
			  "publish");
		return;
	}
	for (int i = 0; i < n; i++)
		check(js_PublishAsync(connection->js, connection->subject, messages[i].ptr,
							  (int) messages[i].len, NULL),
			  "publish");
	check(js_PublishAsyncComplete(connection->js, NULL), "publish");
}

int
peer_consume(void *arg)
{
	Connection *connection = arg;
	natsMsgList list = {0};
	natsStatus status =
		natsSubscription_Fetch(&list, connection->subscription, connection->batch, WAIT_MS, NULL);
	int n = list.Count;

	if (status != NATS_TIMEOUT)
		check(status, "fetch");
	for (int i = 0; i < n && connection->acknowledge; i++)
		check(natsMsg_Ack(list.Msgs[i], NULL), "ack");
	natsMsgList_Destroy(&list);
	return n;
}
