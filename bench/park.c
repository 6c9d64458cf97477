/*
 * park.c
 *		Polls that find nothing and wait, thousands of them.
 *
 * Each connection has had one request answered before its poll, because a
 * server may treat the first request of a connection differently.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#define OPENING 64 /* connections at a time that wait for their first answer */
#define POLL_MS 300000

typedef struct Parker
{
	Exchange exchange;
	bool polling;
} Parker;

static Parker *parkers;
static int opened, parked;
static int64_t parked_since; /* of all */

static Buf first_path, poll_path;

static void
open_next(void)
{
	if (opened < options.park)
		exchange_start(&parkers[opened++].exchange, "GET", first_path.data, NULL);
}

/* A poll is not to be answered here: the generator leaves before its time is up. */
static void
on_answer(void *ctx, ExchangeEnd end)
{
	Parker *parker = ctx;

	if (parker->polling || end != EXCHANGE_ANSWERED || parker->exchange.status != 204)
	{
		count_error("poll", &parker->exchange, end);
		stopped = true;
		return;
	}
	parker->polling = true;
	exchange_start(&parker->exchange, "GET", poll_path.data, NULL);
	if (++parked == options.park)
	{
		parked_since = clock_us();
		printf("parked %d\n", parked);
		fflush(stdout);
	}
	open_next();
}

void
parkers_open(void)
{
	buf_printf(&first_path, "/api/v1/pop/queue/%s", options.queue);
	buf_printf(&poll_path, "/api/v1/pop/queue/%s?wait=true&timeout=%d", options.queue, POLL_MS);
	parkers = calloc((size_t) options.park, sizeof(*parkers));
	for (int i = 0; i < options.park; i++)
		exchange_init(&parkers[i].exchange, epoll_fd, options.port, on_answer, &parkers[i]);
	for (int i = 0; i < OPENING; i++)
		open_next();
}

bool
parkers_finished(int64_t now)
{
	return stopped || options.park == 0 || (parked_since > 0 && time_is_up(parked_since, now));
}

/* Only while connections are being opened: a poll may last longer than that. */
void
parkers_check_deadlines(int64_t now)
{
	for (int i = 0; i < opened; i++)
		if (!parkers[i].polling)
			exchange_check_deadline(&parkers[i].exchange, now);
}
