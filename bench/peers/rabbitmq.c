/*
 * rabbitmq.c
 *		RabbitMQ: a durable queue, persistent messages, publisher confirms; consumers
 *		acknowledge a batch with one frame.
 *
 * BENCH_PEER_PORT says where the server listens on the loopback interface.
 */
#include "peer.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define CHANNEL 1
#define PERSISTENT 2
#define WAIT_US 200000

typedef struct Connection
{
	amqp_connection_state_t state;
	amqp_bytes_t queue;
	uint64_t first; /* number of the first message that is being pushed */
	int pushed, unconfirmed;
	bool confirmed[MAX_BATCH];
	int batch;
	bool acknowledge;
} Connection;

static void
check(amqp_rpc_reply_t reply, const char *what)
{
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		peer_fail(what, reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
							? amqp_error_string2(reply.library_error)
							: "refused by the server");
}

static Connection *
open_connection(const char *queue)
{
	Connection *connection = calloc(1, sizeof(*connection));
	amqp_socket_t *socket;

	connection->state = amqp_new_connection();
	connection->queue = amqp_cstring_bytes(queue);
	socket = amqp_tcp_socket_new(connection->state);
	if (amqp_socket_open(socket, "127.0.0.1", atoi(peer_environment("BENCH_PEER_PORT"))) != 0)
		peer_fail("connect", "refused");
	check(
		amqp_login(connection->state, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"),
		"login");
	amqp_channel_open(connection->state, CHANNEL);
	check(amqp_get_rpc_reply(connection->state), "channel");
	return connection;
}

void
peer_create(const char *queue)
{
	Connection *connection = open_connection(queue);

	amqp_queue_declare(connection->state, CHANNEL, connection->queue, 0, 1, 0, 0, amqp_empty_table);
	check(amqp_get_rpc_reply(connection->state), "declare");
	amqp_connection_close(connection->state, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(connection->state);
	free(connection);
}

void *
peer_connect(const char *queue, int batch, bool acknowledge)
{
	Connection *connection = open_connection(queue);

	connection->batch = batch;
	connection->acknowledge = acknowledge;
	connection->first = 1;
	if (batch == 0)
		amqp_confirm_select(connection->state, CHANNEL);
	else
	{
		amqp_basic_qos(connection->state, CHANNEL, 0, (uint16_t) (2 * batch), 0);
		amqp_basic_consume(connection->state, CHANNEL, connection->queue, amqp_empty_bytes, 0,
						   !acknowledge, 0, amqp_empty_table);
	}
	check(amqp_get_rpc_reply(connection->state), "channel");
	return connection;
}

static void
confirm(Connection *connection, int i)
{
	if (i < 0 || i >= connection->pushed)
		peer_fail("confirmation", "of a message that is not in flight");
	connection->unconfirmed -= !connection->confirmed[i];
	connection->confirmed[i] = true;
}

/* Reads a confirmation; one may be for all messages up to its own. */
static void
await_confirmation(Connection *connection)
{
	amqp_frame_t frame;
	amqp_basic_ack_t *ack;
	int number;

	if (amqp_simple_wait_frame(connection->state, &frame) != AMQP_STATUS_OK)
		peer_fail("confirmation", "connection lost");
	if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
		peer_fail("confirmation", "not positive");
	ack = frame.payload.method.decoded;
	number = (int) (ack->delivery_tag - connection->first);
	for (int i = ack->multiple ? 0 : number; i <= number; i++)
		confirm(connection, i);
	amqp_maybe_release_buffers(connection->state);
}

void
peer_push(void *arg, const Span *messages, int n)
{
	Connection *connection = arg;
	amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
										  .delivery_mode = PERSISTENT};

	for (int i = 0; i < n; i++)
	{
		amqp_bytes_t body = {messages[i].len, (void *) messages[i].ptr};

		if (amqp_basic_publish(connection->state, CHANNEL, amqp_empty_bytes, connection->queue, 0,
							   0, &properties, body) != AMQP_STATUS_OK)
			peer_fail("publish", "connection lost");
		connection->confirmed[i] = false;
	}
	connection->pushed = connection->unconfirmed = n;
	while (connection->unconfirmed > 0)
		await_confirmation(connection);
	connection->first += (uint64_t) n;
}

int
peer_consume(void *arg)
{
	Connection *connection = arg;
	struct timeval timeout = {0, WAIT_US};
	uint64_t tag = 0;
	int n = 0;

	while (n < connection->batch)
	{
		amqp_envelope_t envelope;
		amqp_rpc_reply_t reply = amqp_consume_message(connection->state, &envelope, &timeout, 0);

		if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
			reply.library_error == AMQP_STATUS_TIMEOUT)
			break;
		check(reply, "consume");
		tag = envelope.delivery_tag;
		amqp_destroy_envelope(&envelope);
		n++;
	}
	if (n > 0 && connection->acknowledge)
		amqp_basic_ack(connection->state, CHANNEL, tag, 1);
	amqp_maybe_release_buffers(connection->state);
	return n;
}
