/*
 * push.c
 *		Connections that push.
 *
 * In the closed loop each sends its next request when the last one was
 * answered.  In the open loop requests are due at fixed times; one that finds
 * no free connection waits, and its latency counts from when it was due, so a
 * server that stalls cannot hide how long it kept others waiting.
 */
#include "bench.h"

#include <stdlib.h>

typedef struct Pusher
{
	Exchange exchange;
	Buf body;
	int64_t due;
	unsigned int random;
} Pusher;

static Pusher *pushers;
static Pusher **idle; /* a stack */
static int n_idle;
static int64_t next_number; /* of the next message */
static int64_t requests;	/* begun */

static bool
nothing_left(int64_t now)
{
	return stopped || (options.messages > 0 && next_number >= options.first + options.messages) ||
		   time_is_up(totals.start, now);
}

static void
build_body(Pusher *pusher)
{
	Buf *body = &pusher->body;
	int partition = rand_r(&pusher->random) % options.partitions * options.stride;
	Buf head = {0};

	buf_printf(&head, "{\"queue\":\"%s\",\"partition\":\"p%d\",\"transactionId\":\"" ID_PREFIX,
			   options.queue, partition);
	buf_reset(body);
	buf_append_str(body, "{\"items\":[");
	for (int i = 0; i < options.batch; i++)
	{
		Span payload = payload_choose(&pusher->random);

		if (i > 0)
			buf_append_char(body, ',');
		buf_append(body, head.data, head.len);
		buf_printf(body, "%0*llx\",\"payload\":", ID_DIGITS, (long long) next_number);
		buf_append(body, payload.ptr, payload.len);
		buf_append_char(body, '}');
		if (due_times)
			due_times[next_number - options.first] = pusher->due;
		next_number++;
	}
	buf_append_str(body, "]}");
	buf_free(&head);
}

static void
begin(Pusher *pusher, int64_t due)
{
	pusher->due = due;
	requests++;
	build_body(pusher);
	exchange_start(&pusher->exchange, "POST", "/api/v1/push", &pusher->body);
}

static void
on_answer(void *ctx, ExchangeEnd end)
{
	Pusher *pusher = ctx;
	const Exchange *x = &pusher->exchange;
	int64_t now = clock_us();

	if (end == EXCHANGE_ANSWERED && x->status == 201 &&
		count_word(x->body, "\"status\":\"queued\"") == options.batch)
	{
		totals.pushed += options.batch;
		totals.last = now;
		histogram_add(&totals.push, now - pusher->due);
	}
	else
		count_error("push", x, end);
	if (options.rate == 0 && !nothing_left(now))
		begin(pusher, now);
	else
		idle[n_idle++] = pusher;
}

void
pushers_open(void)
{
	pushers = calloc((size_t) options.push, sizeof(*pushers));
	idle = calloc((size_t) options.push, sizeof(*idle));
	next_number = options.first;
	for (int i = 0; i < options.push; i++)
	{
		exchange_init(&pushers[i].exchange, epoll_fd, options.port, on_answer, &pushers[i]);
		pushers[i].random = (unsigned int) (options.seed * 1000 + i);
		idle[n_idle++] = &pushers[i];
	}
}

static int64_t
next_due(void)
{
	return totals.start + (int64_t) ((double) requests * options.batch * 1e6 / options.rate);
}

int64_t
pushers_turn(int64_t now)
{
	while (n_idle > 0 && !nothing_left(now))
	{
		int64_t due = options.rate > 0 ? next_due() : now;

		if (due > now)
			return due;
		begin(idle[--n_idle], due);
	}
	return INT64_MAX;
}

bool
pushers_finished(void)
{
	return n_idle == options.push && (options.push == 0 || nothing_left(clock_us()));
}

void
pushers_check_deadlines(int64_t now)
{
	for (int i = 0; i < options.push; i++)
		exchange_check_deadline(&pushers[i].exchange, now);
}
