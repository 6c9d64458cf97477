/*
 * queen-bench.c
 *		Load on a server, and how fast it was: messages, latencies, wrong answers.
 *
 * One thread, one epoll.  At the end one line of JSON on stdout.  The exit code
 * is 1 when anything was not answered as it should be, came twice, or is missing:
 * speed with errors is no result.
 */
#include "bench.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define MAX_EVENTS 256
#define LONGEST_WAIT_US 10000
#define DEADLINE_INTERVAL_US 1000000
#define ERRORS_SHOWN 5

Options options = {.queue = "bench",
				   .batch = 1,
				   .partitions = 64,
				   .stride = 1,
				   .payload = 200,
				   .seed = 1,
				   .pop_batch = 100,
				   .groups = 1,
				   .group = "g"};
Totals totals;
int epoll_fd;
volatile bool stopped;
int64_t *due_times;

/* --- answers ------------------------------------------------------------------ */

void
count_error(const char *what, const Exchange *exchange, ExchangeEnd end)
{
	if (totals.errors++ >= ERRORS_SHOWN)
		return;
	if (end == EXCHANGE_ANSWERED)
		fprintf(stderr, "%s: answered %d %.*s\n", what, exchange->status,
				(int) (exchange->body.len < 300 ? exchange->body.len : 300), exchange->body.ptr);
	else
		fprintf(stderr, "%s: not answered\n", what);
}

int64_t
count_word(Span text, const char *word)
{
	const char *at = text.ptr, *end = text.ptr + text.len;
	size_t len = strlen(word);
	int64_t count = 0;

	while (at && (at = memmem(at, (size_t) (end - at), word, len)) != NULL)
	{
		at += len;
		count++;
	}
	return count;
}

bool
time_is_up(int64_t start, int64_t now)
{
	return options.seconds > 0 && now >= start + (int64_t) (options.seconds * 1e6);
}

/* --- the loop -------------------------------------------------------------------- */

static bool
finished(int64_t now)
{
	return pushers_finished() && (options.pop == 0 || poppers_finished()) && parkers_finished(now);
}

static void
wait_for_events(int64_t until)
{
	struct epoll_event events[MAX_EVENTS];
	int64_t wait = until - clock_us();
	struct timespec timeout = {0, 0};
	int ready;

	if (wait > LONGEST_WAIT_US)
		wait = LONGEST_WAIT_US;
	if (wait > 0)
		timeout.tv_nsec = wait * 1000;
	ready = epoll_pwait2(epoll_fd, events, MAX_EVENTS, &timeout, NULL);
	for (int i = 0; i < ready; i++)
		exchange_ready(events[i].data.ptr);
}

static void
run(void)
{
	int64_t next_check = 0;

	while (!finished(clock_us()))
	{
		int64_t now = clock_us();

		if (now >= next_check)
		{
			pushers_check_deadlines(now);
			poppers_check_deadlines(now);
			parkers_check_deadlines(now);
			next_check = now + DEADLINE_INTERVAL_US;
		}
		wait_for_events(pushers_turn(now));
	}
}

/* --- options ------------------------------------------------------------------------ */

typedef struct Option
{
	const char *name;
	int *number;
	int64_t *large;
	double *real;
	bool *flag;
	const char **text;
} Option;

static const Option table[] = {
	{"port", .number = &options.port},			 {"queue", .text = &options.queue},
	{"seconds", .real = &options.seconds},		 {"messages", .large = &options.messages},
	{"push", .number = &options.push},			 {"batch", .number = &options.batch},
	{"first", .large = &options.first},			 {"partitions", .number = &options.partitions},
	{"stride", .number = &options.stride},		 {"rate", .number = &options.rate},
	{"payload", .number = &options.payload},	 {"payloads", .text = &options.payloads},
	{"seed", .number = &options.seed},			 {"pop", .number = &options.pop},
	{"pop-batch", .number = &options.pop_batch}, {"groups", .number = &options.groups},
	{"group", .text = &options.group},			 {"auto-ack", .flag = &options.auto_ack},
	{"pinned", .flag = &options.pinned},		 {"park", .number = &options.park},
};

#define N_OPTIONS (sizeof(table) / sizeof(table[0]))

static void
usage(void)
{
	fprintf(stderr, "usage: queen-bench --port PORT [--OPTION [VALUE]]...\noptions:");
	for (size_t i = 0; i < N_OPTIONS; i++)
		fprintf(stderr, " --%s", table[i].name);
	fprintf(stderr, "\n");
	exit(2);
}

static bool
sensible(void)
{
	return options.port > 0 && options.push >= 0 && options.pop >= 0 && options.park >= 0 &&
		   options.push + options.pop + options.park > 0 && options.batch > 0 &&
		   options.partitions > 0 && options.rate >= 0 && options.groups > 0 &&
		   options.groups <= MAX_GROUPS && options.messages % options.batch == 0 &&
		   (options.seconds > 0 || options.messages > 0) &&
		   (options.messages > 0 || (options.pop == 0 && options.rate == 0));
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
		else if (table[i].large)
			*table[i].large = atoll(optarg);
		else if (table[i].real)
			*table[i].real = atof(optarg);
		else
			*table[i].text = optarg;
	}
	if (optind < argc || !sensible())
		usage();
}

/* --- report ----------------------------------------------------------------------------- */

static void
print_latency(const char *name, const Histogram *histogram)
{
	printf(",\"%s\":{\"count\":%" PRId64 ",\"p50\":%" PRId64 ",\"p90\":%" PRId64 ",\"p99\":%" PRId64
		   ",\"p999\":%" PRId64 ",\"max\":%" PRId64 "}",
		   name, histogram->count, histogram_quantile(histogram, 0.5),
		   histogram_quantile(histogram, 0.9), histogram_quantile(histogram, 0.99),
		   histogram_quantile(histogram, 0.999), histogram->max);
}

static int
report(void)
{
	int64_t missing = options.pop > 0 ? poppers_missing() : 0;

	printf("{\"seconds\":%.6f,\"pushed\":%" PRId64 ",\"delivered\":%" PRId64
		   ",\"acknowledged\":%" PRId64 ",\"errors\":%" PRId64 ",\"duplicates\":%" PRId64
		   ",\"missing\":%" PRId64,
		   (double) (totals.last - totals.start) / 1e6, totals.pushed, totals.delivered,
		   totals.acknowledged, totals.errors, totals.duplicates, missing);
	print_latency("push_us", &totals.push);
	print_latency("pop_us", &totals.pop);
	print_latency("ack_us", &totals.ack);
	print_latency("delivery_us", &totals.delivery);
	printf("}\n");
	return totals.errors + totals.duplicates + missing > 0 ? 1 : 0;
}

/* --- main --------------------------------------------------------------------------------- */

static void
on_signal(int signal_number)
{
	(void) signal_number;
	stopped = true;
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
	read_options(argc, argv);
	raise_descriptor_limit();
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	payloads_open();
	if (options.push > 0 && options.pop > 0)
		due_times = calloc((size_t) options.messages, sizeof(*due_times));
	totals.start = totals.last = clock_us();
	pushers_open();
	poppers_open();
	parkers_open();
	run();
	return report();
}
