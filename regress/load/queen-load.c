/*
 * queen-load.c
 *		Closed-loop load on front ends, with a history of what was answered.
 *
 * One thread, one epoll; bounded in time always and in count if asked.  At the
 * end one line on stdout says what was counted.  SIGTERM ends it early.
 */
#include "load.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAUSE_US 20000
#define SETTLE_US 5000000 /* after the end, for what was begun: an acknowledgement */
#define TICK_MS 10
#define MAX_EVENTS 256

Options options = {.queue = "load",
				   .prefix = "m",
				   .seconds = 60,
				   .seed = 1,
				   .partitions = 1,
				   .batch = 1,
				   .payload = 100,
				   .pop_batch = 200,
				   .pop_partitions = 1,
				   .pop_timeout = 1000,
				   .lease = 60};
Totals totals;

static int epoll_fd;
static int64_t end_time;
static volatile sig_atomic_t stopped;

/* --- clients ------------------------------------------------------------------ */

void
client_init(Client *client, int number, void (*next)(Client *client),
			void (*done)(void *ctx, ExchangeEnd end))
{
	client->number = number;
	client->next = next;
	client->wake_at = 1;
	client->random = (unsigned int) (options.seed * 1000 + number);
	exchange_init(&client->exchange, epoll_fd, options.ports[number % options.n_ports], done,
				  client);
}

bool
client_time_is_up(Client *client)
{
	client->finished = client->finished || clock_us() > end_time;
	return client->finished;
}

void
client_send(Client *client, const char *method, const char *path, const Buf *body)
{
	client->invoked = clock_us();
	if (stopped || client->invoked > end_time + SETTLE_US)
	{
		client->finished = true;
		return;
	}
	exchange_start(&client->exchange, method, path, body);
}

void
client_pause(Client *client)
{
	client->wake_at = clock_us() + PAUSE_US;
}

bool
client_chance(Client *client, int percent)
{
	return percent > 0 && rand_r(&client->random) % 100 < percent;
}

/* Wakes those that paused, drops what is overdue; false when all are finished. */
static bool
tick(Client **clients, int n)
{
	int64_t now = clock_us();
	bool more = false;

	for (int i = 0; i < n; i++)
	{
		Client *client = clients[i];

		exchange_check_deadline(&client->exchange, now);
		if (!client->finished && client->wake_at && now >= client->wake_at)
		{
			client->wake_at = 0;
			client->next(client);
		}
		more = more || !client->finished;
	}
	return more;
}

static void
run(Client **clients, int n)
{
	struct epoll_event events[MAX_EVENTS];
	int64_t next_tick = 0;

	while (true)
	{
		int ready;

		if (clock_us() >= next_tick)
		{
			if (!tick(clients, n))
				return;
			next_tick = clock_us() + TICK_MS * 1000;
		}
		ready = epoll_wait(epoll_fd, events, MAX_EVENTS, TICK_MS);
		for (int i = 0; i < ready; i++)
			exchange_ready(events[i].data.ptr);
	}
}

/* --- options ------------------------------------------------------------------ */

typedef struct Option
{
	const char *name;
	int *number;
	bool *flag;
	const char **text;
} Option;

static const char *ports_text, *groups_text;

static const Option table[] = {
	{"ports", .text = &ports_text},
	{"queue", .text = &options.queue},
	{"prefix", .text = &options.prefix},
	{"history", .text = &options.history},
	{"seconds", .number = &options.seconds},
	{"seed", .number = &options.seed},
	{"producers", .number = &options.producers},
	{"partitions", .number = &options.partitions},
	{"roam", .flag = &options.roam},
	{"batch", .number = &options.batch},
	{"count", .number = &options.count},
	{"repeat", .number = &options.repeat},
	{"payload", .number = &options.payload},
	{"consumers", .number = &options.consumers},
	{"groups", .text = &groups_text},
	{"pop-batch", .number = &options.pop_batch},
	{"pop-partitions", .number = &options.pop_partitions},
	{"pop-timeout", .number = &options.pop_timeout},
	{"lease", .number = &options.lease},
	{"auto-ack", .flag = &options.auto_ack},
	{"until-empty", .flag = &options.until_empty},
	{"fail", .number = &options.fail},
	{"retry", .number = &options.retry},
	{"partial", .number = &options.partial},
	{"abandon", .number = &options.abandon},
};

#define N_OPTIONS (sizeof(table) / sizeof(table[0]))

static void
usage(void)
{
	fprintf(stderr, "usage: queen-load --ports PORT[,PORT...] [--OPTION [VALUE]...]\noptions:");
	for (size_t i = 0; i < N_OPTIONS; i++)
		fprintf(stderr, " --%s", table[i].name);
	fprintf(stderr, "\n");
	exit(2);
}

static void
split_lists(void)
{
	char *copy = strdup(ports_text ? ports_text : "");

	for (char *word = strtok(copy, ","); word && options.n_ports < MAX_PORTS;
		 word = strtok(NULL, ","))
		options.ports[options.n_ports++] = atoi(word);
	free(copy);
	copy = strdup(groups_text ? groups_text : "workers"); /* kept: the names live in it */
	for (char *word = strtok(copy, ","); word && options.n_groups < MAX_GROUPS;
		 word = strtok(NULL, ","))
		options.groups[options.n_groups++] = word;
}

static void
read_options(int argc, char **argv)
{
	struct option list[N_OPTIONS + 1] = {0};
	int i;

	for (size_t j = 0; j < N_OPTIONS; j++)
		list[j] = (struct option){table[j].name, table[j].flag ? no_argument : required_argument,
								  NULL, 0};
	while (getopt_long(argc, argv, "", list, &i) == 0)
	{
		if (table[i].flag)
			*table[i].flag = true;
		else if (table[i].number)
			*table[i].number = atoi(optarg);
		else
			*table[i].text = optarg;
	}
	split_lists();
	if (optind < argc || options.n_ports == 0 || options.producers + options.consumers == 0 ||
		options.partitions < 1 || options.batch < 1)
		usage();
}

/* --- main --------------------------------------------------------------------- */

static void
on_sigterm(int signal_number)
{
	(void) signal_number;
	stopped = 1;
}

static void
raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
	{
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int
main(int argc, char **argv)
{
	Client **clients;
	int64_t start;
	int n;

	read_options(argc, argv);
	raise_descriptor_limit();
	signal(SIGTERM, on_sigterm);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (options.history && !history_open(options.history))
	{
		perror(options.history);
		return 2;
	}
	start = clock_us();
	end_time = start + options.seconds * 1000000LL;
	n = options.producers + options.consumers;
	clients = calloc((size_t) n, sizeof(*clients));
	for (int i = 0; i < n; i++)
		clients[i] = i < options.producers ? producer_new(i) : consumer_new(i);
	run(clients, n);
	printf("{\"seconds\":%.3f,\"pushed\":%lld,\"delivered\":%lld,\"acknowledged\":%lld,"
		   "\"refused\":%lld,\"unknown\":%lld}\n",
		   (double) (clock_us() - start) / 1e6, (long long) totals.pushed,
		   (long long) totals.delivered, (long long) totals.acknowledged,
		   (long long) totals.refused, (long long) totals.unknown);
	for (int i = 0; i < n; i++)
		(i < options.producers ? producer_free : consumer_free)(clients[i]);
	free(clients);
	history_close();
	return 0;
}
