/*
 * producer.c
 *		A client that pushes.
 *
 * It repeats a request, with the same transaction ids, until it knows that
 * all of it is stored.  So what it pushes to one partition must be there in
 * the order of its numbers, each once.
 */
#include "load.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct Producer
{
	Client client;
	int requests; /* whose fate is known */
	int partition;
	int64_t first; /* number of the first message of the request */
	bool settled;  /* the request's fate is known */
} Producer;

static void
append_ids(Buf *out, const Producer *producer, const char *before, const char *after)
{
	for (int i = 0; i < options.batch; i++)
		buf_printf(out, "%s%s\"%s-%d-%lld\"%s", i ? "," : "", before, options.prefix,
				   producer->client.number, (long long) producer->first + i, after);
}

static void
build_body(Producer *producer)
{
	Buf *body = &producer->client.body;
	Buf before = {0}, after = {0};

	buf_printf(&before, "{\"queue\":\"%s\",\"partition\":\"p%d\",\"transactionId\":", options.queue,
			   producer->partition);
	buf_append_char(&before, '\0');
	buf_append_str(&after, ",\"payload\":\"");
	for (int i = 0; i < options.payload; i++)
		buf_append_char(&after, (char) ('a' + rand_r(&producer->client.random) % 26));
	buf_append_str(&after, "\"}");
	buf_append_char(&after, '\0');
	buf_reset(body);
	buf_append_str(body, "{\"items\":[");
	append_ids(body, producer, before.data, after.data);
	buf_append_str(body, "]}");
	buf_free(&before);
	buf_free(&after);
}

static void
next_request(Client *client)
{
	Producer *producer = (Producer *) client;

	if (client_time_is_up(client))
		return;
	if (producer->settled)
	{
		if (options.count > 0 && producer->requests >= options.count)
		{
			client->finished = true;
			return;
		}
		if (!(producer->requests > 0 && client_chance(client, options.repeat)))
		{
			producer->first += producer->requests > 0 ? options.batch : 0;
			producer->partition =
				(options.roam ? rand_r(&client->random) : client->number) % options.partitions;
			build_body(producer);
		}
		producer->settled = false;
	}
	client_send(client, "POST", "/api/v1/push", &client->body);
}

/* Notes the status of every message; true when all are stored. */
static bool
note_statuses(Buf *line, Span body)
{
	json_t *answer = json_loadb(body.ptr, body.len, 0, NULL);
	bool all = true;
	json_t *item;
	size_t i;

	buf_append_str(line, ",\"statuses\":[");
	json_array_foreach(answer, i, item)
	{
		const char *status = json_string_value(json_object_get(item, "status"));
		bool stored = strcmp(status, "failed") != 0;

		buf_printf(line, "%s\"%s\"", i ? "," : "", status);
		all = all && stored;
		totals.pushed += stored;
	}
	buf_append_char(line, ']');
	all = all && json_array_size(answer) == (size_t) options.batch;
	json_decref(answer);
	return all;
}

static void
request_done(void *ctx, ExchangeEnd end)
{
	Producer *producer = ctx;
	Client *client = &producer->client;
	Buf *line = history_begin(client, "push", end);

	buf_printf(line, ",\"partition\":\"p%d\",\"ids\":[", producer->partition);
	append_ids(line, producer, "", "");
	buf_append_char(line, ']');
	if (end == EXCHANGE_ANSWERED && client->exchange.status == 201)
		producer->settled = note_statuses(line, client->exchange.body);
	history_end();
	if (producer->settled)
	{
		producer->requests++;
		next_request(client);
	}
	else
		client_pause(client);
}

Client *
producer_new(int number)
{
	Producer *producer = calloc(1, sizeof(*producer));

	client_init(&producer->client, number, next_request, request_done);
	producer->settled = true;
	return &producer->client;
}

void
producer_free(Client *client)
{
	exchange_free(&client->exchange);
	buf_free(&client->body);
	free(client);
}
