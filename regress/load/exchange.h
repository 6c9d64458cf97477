/*
 * exchange.h
 *		One HTTP request and its answer at a time, over a kept-alive connection.
 *
 * The one distinction that matters to a history: a request of which no byte
 * was sent did nothing; one that was sent and got no answer may have.
 */
#ifndef QUEEN_LOAD_EXCHANGE_H
#define QUEEN_LOAD_EXCHANGE_H

#include "buf.h"

typedef enum ExchangeEnd
{
	EXCHANGE_ANSWERED,
	EXCHANGE_NOT_SENT,
	EXCHANGE_UNKNOWN /* sent, at least in part, and not answered */
} ExchangeEnd;

typedef struct Exchange
{
	int epoll_fd;
	int port;		 /* on the loopback interface */
	int fd;			 /* -1: not connected */
	uint32_t events; /* that the socket is watched for */
	bool busy;
	Buf out;
	size_t sent;
	Buf in;
	int64_t deadline; /* microseconds, while busy */

	/* the answer, until the next request */
	int status;
	Span body;

	void (*done)(void *ctx, ExchangeEnd end);
	void *ctx;
} Exchange;

extern void exchange_init(Exchange *x, int epoll_fd, int port,
						  void (*done)(void *ctx, ExchangeEnd end), void *ctx);
extern void exchange_free(Exchange *x);

/* Begins a request; "body" may be NULL.  Ends with done(), never from within. */
extern void exchange_start(Exchange *x, const char *method, const char *path, const Buf *body);

/* The socket is ready. */
extern void exchange_ready(Exchange *x);

/* Gives up on an answer that is overdue. */
extern void exchange_check_deadline(Exchange *x, int64_t now);

/* Monotonic microseconds. */
extern int64_t clock_us(void);

#endif
