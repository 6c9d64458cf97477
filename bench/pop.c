/*
 * pop.c
 *		Connections that pop, and acknowledge what they got.
 *
 * They end when every group has been given every message once, when nothing has
 * come for a while although something is missing, or when their time is up, and
 * then nothing counts as missing.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define STALL_US (10 * INT64_C(1000000))

typedef struct Popper
{
	Exchange exchange;
	int group;
	Buf path;
	int64_t sent;
	int64_t leased; /* messages whose acknowledgement is in flight */
	Buf ack;
} Popper;

static Popper *poppers;
static uint8_t *seen[MAX_GROUPS]; /* a bit per message */

/* --- what was delivered ------------------------------------------------------- */

static void
note_delivery(Popper *popper, int64_t number, int64_t now)
{
	uint8_t *byte, bit;

	number -= options.first;
	if (number < 0 || number >= options.messages)
	{
		totals.duplicates++; /* of nothing that this run pushed */
		return;
	}
	byte = &seen[popper->group][number / 8];
	bit = (uint8_t) (1 << (number % 8));
	totals.duplicates += (*byte & bit) != 0;
	totals.delivered += (*byte & bit) == 0;
	*byte |= bit;
	if (due_times)
		histogram_add(&totals.delivery, now - due_times[number]);
}

/* Text of the string member "name" that comes next, moving "at" behind it. */
static Span
next_member(const char **at, const char *end, const char *name)
{
	const char *text = memmem(*at, (size_t) (end - *at), name, strlen(name));
	const char *quote;

	if (text == NULL)
		return (Span){NULL, 0};
	text += strlen(name);
	quote = memchr(text, '"', (size_t) (end - text));
	if (quote == NULL)
		return (Span){NULL, 0};
	*at = quote;
	return (Span){text, (size_t) (quote - text)};
}

static Span
member(Span body, const char *name)
{
	const char *at = body.ptr;

	return next_member(&at, body.ptr + body.len, name);
}

static void
append_acknowledgement(Popper *popper, Span id, Span partition_id, Span lease_id)
{
	Buf *ack = &popper->ack;

	buf_append_str(ack, popper->leased > 0 ? ",{\"transactionId\":\"" : "{\"transactionId\":\"");
	buf_append(ack, id.ptr, id.len);
	buf_append_str(ack, "\",\"partitionId\":\"");
	buf_append(ack, partition_id.ptr, partition_id.len);
	buf_append_str(ack, "\",\"leaseId\":\"");
	buf_append(ack, lease_id.ptr, lease_id.len);
	buf_append_str(ack, "\",\"status\":\"completed\"}");
	popper->leased++;
}

/* A pop claims one partition, so one partition id and one lease hold for all. */
static void
take_messages(Popper *popper, Span body, int64_t now)
{
	const char *at = body.ptr, *end = body.ptr + body.len;
	Span partition_id = member(body, "\"partitionId\":\"");
	Span lease_id = member(body, "\"leaseId\":\"");
	Span id;

	buf_reset(&popper->ack);
	buf_printf(&popper->ack, "{\"consumerGroup\":\"%s%d\",\"acknowledgments\":[", options.group,
			   popper->group);
	while ((id = next_member(&at, end, "\"transactionId\":\"" ID_PREFIX)).ptr)
	{
		note_delivery(popper, strtoll(id.ptr, NULL, 16), now);
		if (options.auto_ack)
			totals.acknowledged++;
		else
			append_acknowledgement(popper,
								   (Span){id.ptr - strlen(ID_PREFIX), id.len + strlen(ID_PREFIX)},
								   partition_id, lease_id);
	}
	buf_append_str(&popper->ack, "]}");
}

/* --- requests ------------------------------------------------------------------- */

bool
poppers_finished(void)
{
	int64_t wanted = options.messages * options.groups;

	int64_t now = clock_us();

	return totals.acknowledged >= wanted || stopped || time_is_up(totals.start, now) ||
		   now > totals.last + STALL_US;
}

int64_t
poppers_missing(void)
{
	return options.seconds > 0 ? 0 : options.messages * options.groups - totals.delivered;
}

static void
send_pop(Popper *popper)
{
	popper->sent = clock_us();
	exchange_start(&popper->exchange, "GET", popper->path.data, NULL);
}

static void
send_ack(Popper *popper)
{
	popper->sent = clock_us();
	exchange_start(&popper->exchange, "POST", "/api/v1/ack/batch", &popper->ack);
}

static void
on_popped(Popper *popper, ExchangeEnd end)
{
	const Exchange *x = &popper->exchange;
	int64_t now = clock_us();

	if (end == EXCHANGE_ANSWERED && x->status == 200)
	{
		totals.last = now;
		histogram_add(&totals.pop, now - popper->sent);
		take_messages(popper, x->body, now);
	}
	else if (end != EXCHANGE_ANSWERED || x->status != 204)
		count_error("pop", x, end);
}

static void
on_acknowledged(Popper *popper, ExchangeEnd end)
{
	const Exchange *x = &popper->exchange;
	int64_t now = clock_us();

	if (end == EXCHANGE_ANSWERED && x->status == 200 &&
		count_word(x->body, "\"success\":true") == popper->leased)
	{
		totals.last = now;
		totals.acknowledged += popper->leased;
		histogram_add(&totals.ack, now - popper->sent);
	}
	else
		count_error("ack", x, end);
	popper->leased = 0;
}

static void
on_answer(void *ctx, ExchangeEnd end)
{
	Popper *popper = ctx;

	if (popper->leased > 0)
		on_acknowledged(popper, end);
	else
		on_popped(popper, end);
	if (popper->leased > 0)
		send_ack(popper);
	else if (!poppers_finished())
		send_pop(popper);
}

void
poppers_open(void)
{
	for (int i = 0; i < options.groups; i++)
		seen[i] = calloc((size_t) options.messages / 8 + 1, 1);
	poppers = calloc((size_t) options.pop, sizeof(*poppers));
	for (int i = 0; i < options.pop; i++)
	{
		Popper *popper = &poppers[i];

		exchange_init(&popper->exchange, epoll_fd, options.port, on_answer, popper);
		popper->group = i % options.groups;
		buf_printf(&popper->path, "/api/v1/pop/queue/%s", options.queue);
		if (options.pinned)
			buf_printf(&popper->path, "/partition/p%d", i % options.partitions);
		buf_printf(&popper->path,
				   "?consumerGroup=%s%d&subscriptionMode=all&batch=%d&wait=true&timeout=2000%s",
				   options.group, popper->group, options.pop_batch,
				   options.auto_ack ? "&autoAck=true" : "");
		send_pop(popper);
	}
}

void
poppers_check_deadlines(int64_t now)
{
	for (int i = 0; i < options.pop; i++)
		exchange_check_deadline(&poppers[i].exchange, now);
}
