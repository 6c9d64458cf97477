/*
 * load.h
 *		Clients of the load generator, and what they share.
 *
 * A client is a producer or a consumer.  Each keeps exactly one request in
 * flight: it sends the next one when it knows the fate of the last.
 */
#ifndef QUEEN_LOAD_H
#define QUEEN_LOAD_H

#include "exchange.h"

#include <stdio.h>

#define MAX_PORTS 4
#define MAX_GROUPS 8

typedef struct Options
{
	int ports[MAX_PORTS];
	int n_ports;
	const char *queue;
	const char *prefix; /* of transaction ids */
	const char *history;
	int seconds; /* nobody starts a request after that */
	int seed;

	int producers;
	int partitions; /* "p0", "p1", ...; client i writes to number i modulo that */
	bool roam;		/* or to any of them */
	int batch;
	int count;	/* requests of each producer, 0: until the time is over */
	int repeat; /* percent of pushes that are sent once more after they were answered */
	int payload;

	int consumers;
	const char *groups[MAX_GROUPS]; /* client i belongs to number i modulo their number */
	int n_groups;
	int pop_batch;
	int pop_partitions;
	int pop_timeout; /* milliseconds */
	int lease;		 /* seconds */
	bool auto_ack;
	bool until_empty; /* a consumer ends at its first empty answer */
	int fail;		  /* percent of batches with a message that fails */
	int retry;		  /* ... that is sent back uncharged */
	int partial;	  /* ... that are acknowledged in part only */
	int abandon;	  /* ... that are never acknowledged */
} Options;

typedef struct Totals
{
	int64_t pushed; /* messages answered queued or duplicate */
	int64_t delivered;
	int64_t acknowledged;
	int64_t refused; /* requests answered with an error */
	int64_t unknown; /* requests without an answer */
} Totals;

typedef struct Client Client;

struct Client
{
	int number;
	Exchange exchange;
	void (*next)(Client *client); /* begins the next request */
	int64_t wake_at;			  /* 0: a request is in flight */
	bool finished;
	unsigned int random;
	int64_t invoked; /* start of the request in flight, microseconds */
	Buf body;
};

extern Options options;
extern Totals totals;

extern Client *producer_new(int number);
extern Client *consumer_new(int number);
extern void producer_free(Client *client);
extern void consumer_free(Client *client);

extern void client_init(Client *client, int number, void (*next)(Client *client),
						void (*done)(void *ctx, ExchangeEnd end));
extern bool client_time_is_up(Client *client); /* then nothing new is begun */
extern void client_send(Client *client, const char *method, const char *path, const Buf *body);
extern void client_pause(Client *client); /* before it asks again */
extern bool client_chance(Client *client, int percent);

/*
 * History: one JSON object per line.  The caller appends its own members to
 * what history_begin() returns, each with a leading comma.
 */
extern bool history_open(const char *path);
extern Buf *history_begin(const Client *client, const char *op, ExchangeEnd end);
extern void history_end(void);
extern void history_close(void);

#endif
