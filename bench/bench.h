/*
 * bench.h
 *		Parts of the load generator: pushers, poppers, and what they share.
 *
 * A message is known by its number: pushers give them out in turn, the
 * transaction id holds it, and poppers note which numbers they were given.
 */
#ifndef QUEEN_BENCH_H
#define QUEEN_BENCH_H

#include "histogram.h"
#include "../regress/load/exchange.h"

#define MAX_GROUPS 8
#define ID_PREFIX "0193a0de-0000-7000-8000-"
#define ID_DIGITS 12 /* hexadecimal, after the prefix */

typedef struct Options
{
	int port;
	const char *queue;
	double seconds;	  /* nothing is begun after that; 0: until all messages are done */
	int64_t messages; /* how many to push, and how many are there to be popped */

	int push; /* connections that push */
	int batch;
	int64_t first;	/* number of the first message */
	int partitions; /* "p0", "p1", ...: each request chooses one of them at random */
	int stride;		/* from one partition's number to the next one's */
	int rate;		/* messages per second of the open loop; 0: closed loop */
	int payload;	/* bytes of a made-up payload */
	const char *payloads;
	int seed;

	int pop; /* connections that pop; number i is of group i modulo their number */
	int pop_batch;
	int groups;
	const char *group; /* what their names begin with */
	bool auto_ack;
	bool pinned; /* connection i pops partition i only */

	int park; /* connections whose poll finds nothing, and waits */
} Options;

typedef struct Totals
{
	int64_t start; /* microseconds, as all times here */
	int64_t last;  /* the last answer that brought something */
	int64_t pushed;
	int64_t delivered;
	int64_t acknowledged; /* by request, or by the pop that delivered */
	int64_t duplicates;	  /* deliveries of a message that the group had been given before */
	int64_t errors;		  /* requests that were not answered as they should be */
	Histogram push, pop, ack, delivery;
} Totals;

extern Options options;
extern Totals totals;
extern int epoll_fd;
extern volatile bool stopped; /* begin nothing new */

/* The time at which a message should have been sent, where pushers and poppers run together. */
extern int64_t *due_times;

/* Counts an answer that is not as it should be, and shows the first few. */
extern void count_error(const char *what, const Exchange *exchange, ExchangeEnd end);

/* Number of times that "word" occurs. */
extern int64_t count_word(Span text, const char *word);

/* When "seconds" from "start" are over. */
extern bool time_is_up(int64_t start, int64_t now);

extern void payloads_open(void);
extern Span payload_choose(unsigned int *random);

extern void pushers_open(void);
extern int64_t pushers_turn(int64_t now); /* sends what is due; returns when it is next needed */
extern bool pushers_finished(void);
extern void pushers_check_deadlines(int64_t now);

extern void poppers_open(void);
extern bool poppers_finished(void);
extern int64_t poppers_missing(void);
extern void poppers_check_deadlines(int64_t now);

extern void parkers_open(void);
extern bool parkers_finished(int64_t now);
extern void parkers_check_deadlines(int64_t now);

#endif
