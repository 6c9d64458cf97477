/*
 * consumer.c
 *		A client that pops and acknowledges.
 *
 * Of every delivery, one acknowledgement is sent per partition; options make
 * it fail a message, send it back, stop half way, or not acknowledge at all.
 */
#include "load.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct Consumer
{
	Client client;
	const char *group;
	char *path;
	json_t *delivery; /* what is being acknowledged; NULL while popping */
	size_t next;	  /* its first message that has had no acknowledgement */

	/* the acknowledgement in flight: messages [first, first + n) */
	size_t first, n;
	const char *last_status; /* of its last message; the others are completed */
} Consumer;

static json_t *
messages(const Consumer *consumer)
{
	return json_object_get(consumer->delivery, "messages");
}

static const char *
message_field(const Consumer *consumer, size_t i, const char *name)
{
	return json_string_value(json_object_get(json_array_get(messages(consumer), i), name));
}

static void
append_ids(Buf *out, const Consumer *consumer, size_t first, size_t n)
{
	for (size_t i = first; i < first + n; i++)
		buf_printf(out, "%s\"%s\"", i > first ? "," : "",
				   message_field(consumer, i, "transactionId"));
}

/* Number of messages of one partition, from "first" on. */
static size_t
run_length(const Consumer *consumer, size_t first)
{
	size_t end = json_array_size(messages(consumer));
	size_t i = first + 1;

	while (i < end && strcmp(message_field(consumer, i, "partitionId"),
							 message_field(consumer, first, "partitionId")) == 0)
		i++;
	return i - first;
}

/* --- acknowledging ---------------------------------------------------------- */

static void
choose_acknowledgement(Consumer *consumer)
{
	Client *client = &consumer->client;
	bool partial;

	consumer->first = consumer->next;
	consumer->n = run_length(consumer, consumer->first);
	consumer->next += consumer->n;
	consumer->last_status = "completed";
	partial = client_chance(client, options.partial);
	if (client_chance(client, options.fail))
		consumer->last_status = "failed";
	else if (client_chance(client, options.retry))
		consumer->last_status = "retry";
	else if (!partial)
		return;
	consumer->n = 1 + (size_t) rand_r(&client->random) % consumer->n;
}

static void
send_acknowledgement(Consumer *consumer)
{
	Client *client = &consumer->client;
	Buf *body = &client->body;

	buf_reset(body);
	buf_printf(body, "{\"consumerGroup\":\"%s\",\"acknowledgments\":[", consumer->group);
	for (size_t i = 0; i < consumer->n; i++)
		buf_printf(
			body,
			"%s{\"transactionId\":\"%s\",\"partitionId\":\"%s\",\"leaseId\":\"%s\",\"status\":"
			"\"%s\"}",
			i ? "," : "", message_field(consumer, consumer->first + i, "transactionId"),
			message_field(consumer, consumer->first, "partitionId"),
			message_field(consumer, consumer->first, "leaseId"),
			i + 1 < consumer->n ? "completed" : consumer->last_status);
	buf_append_str(body, "]}");
	client_send(client, "POST", "/api/v1/ack/batch", body);
}

static void
note_results(Buf *line, Span body)
{
	json_t *answer = json_loadb(body.ptr, body.len, 0, NULL);
	json_t *item;
	size_t i;

	buf_append_str(line, ",\"results\":[");
	json_array_foreach(answer, i, item)
	{
		bool success = json_is_true(json_object_get(item, "success"));

		buf_printf(line, "%s%s", i ? "," : "", success ? "true" : "false");
		totals.acknowledged += success;
	}
	buf_append_char(line, ']');
	json_decref(answer);
}

static void
acknowledged(Consumer *consumer, ExchangeEnd end)
{
	Client *client = &consumer->client;
	Buf *line = history_begin(client, "ack", end);

	buf_printf(line, ",\"group\":\"%s\",\"partition\":\"%s\",\"lease\":\"%s\",\"last\":\"%s\",",
			   consumer->group, message_field(consumer, consumer->first, "partition"),
			   message_field(consumer, consumer->first, "leaseId"), consumer->last_status);
	buf_append_str(line, "\"ids\":[");
	append_ids(line, consumer, consumer->first, consumer->n);
	buf_append_char(line, ']');
	if (end == EXCHANGE_ANSWERED && client->exchange.status == 200)
		note_results(line, client->exchange.body);
	history_end();
}

/* --- popping ---------------------------------------------------------------- */

static void
note_delivery(Buf *line, const Consumer *consumer)
{
	size_t n = json_array_size(messages(consumer));

	buf_printf(line, ",\"lease\":\"%s\",\"seconds\":%d,\"parts\":[",
			   message_field(consumer, 0, "leaseId"), options.lease);
	for (size_t i = 0; i < n; i += run_length(consumer, i))
	{
		buf_printf(line, "%s{\"partition\":\"%s\",\"ids\":[", i ? "," : "",
				   message_field(consumer, i, "partition"));
		append_ids(line, consumer, i, run_length(consumer, i));
		buf_append_str(line, "]}");
	}
	buf_append_char(line, ']');
	totals.delivered += (int64_t) n;
}

static void
popped(Consumer *consumer, ExchangeEnd end)
{
	Client *client = &consumer->client;
	Buf *line = history_begin(client, "pop", end);
	bool answered = end == EXCHANGE_ANSWERED;

	buf_printf(line, ",\"group\":\"%s\"", consumer->group);
	if (answered && client->exchange.status == 200)
	{
		consumer->delivery =
			json_loadb(client->exchange.body.ptr, client->exchange.body.len, 0, NULL);
		consumer->next = 0;
		note_delivery(line, consumer);
	}
	history_end();
	if (options.auto_ack || client_chance(client, options.abandon))
	{
		json_decref(consumer->delivery);
		consumer->delivery = NULL;
	}
	if (answered && client->exchange.status == 204 && options.until_empty)
		client->finished = true;
}

/* --- the life of a consumer --------------------------------------------------- */

static void
next_request(Client *client)
{
	Consumer *consumer = (Consumer *) client;

	if (consumer->delivery && consumer->next < json_array_size(messages(consumer)))
	{
		choose_acknowledgement(consumer);
		send_acknowledgement(consumer);
		return;
	}
	json_decref(consumer->delivery);
	consumer->delivery = NULL;
	if (!client_time_is_up(client))
		client_send(client, "GET", consumer->path, NULL);
}

static void
request_done(void *ctx, ExchangeEnd end)
{
	Consumer *consumer = ctx;
	Client *client = &consumer->client;

	if (consumer->delivery)
		acknowledged(consumer, end);
	else
		popped(consumer, end);
	if (client->finished)
		return;
	if (end == EXCHANGE_ANSWERED && client->exchange.status < 300)
		next_request(client);
	else
		client_pause(client);
}

Client *
consumer_new(int number)
{
	Consumer *consumer = calloc(1, sizeof(*consumer));

	client_init(&consumer->client, number, next_request, request_done);
	consumer->group = options.groups[number % options.n_groups];
	if (asprintf(&consumer->path,
				 "/api/v1/pop/queue/%s?consumerGroup=%s&subscriptionMode=all&batch=%d&partitions=%d"
				 "&leaseSeconds=%d&autoAck=%s&wait=true&timeout=%d",
				 options.queue, consumer->group, options.pop_batch, options.pop_partitions,
				 options.lease, options.auto_ack ? "true" : "false", options.pop_timeout) < 0)
		abort();
	return &consumer->client;
}

void
consumer_free(Client *client)
{
	Consumer *consumer = (Consumer *) client;

	json_decref(consumer->delivery);
	free(consumer->path);
	exchange_free(&client->exchange);
	buf_free(&client->body);
	free(consumer);
}
