/*
 * peer.c
 *		Puts load on another queue through its driver, a thread per connection.
 *
 * The report has the members that the runner reads of queen-bench's.
 */
#include "peer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL_US (20 * INT64_C(1000000))

typedef enum Operation
{
	PUSH,
	CONSUME,
	DRAIN
} Operation;

typedef struct Thread
{
	pthread_t thread;
	unsigned int random;
	void *connection;
} Thread;

Options options = {.payload = 200, .seed = 1};

static Operation operation;
static int batch;
static int64_t messages, end_time;
static atomic_llong done, last; /* messages, and when some were done */

void
peer_fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

const char *
peer_environment(const char *name)
{
	const char *value = getenv(name);

	if (value == NULL)
		peer_fail(name, "not set");
	return value;
}

static void
note(int n)
{
	if (n > 0)
		atomic_store(&last, clock_us());
	atomic_fetch_add(&done, n);
}

static void
push(Thread *thread)
{
	Span chosen[MAX_BATCH];

	while (clock_us() < end_time)
	{
		for (int i = 0; i < batch; i++)
			chosen[i] = payload_choose(&thread->random);
		peer_push(thread->connection, chosen, batch);
		note(batch);
	}
}

static void
consume(Thread *thread)
{
	while (atomic_load(&done) < messages && clock_us() < atomic_load(&last) + STALL_US)
		note(peer_consume(thread->connection));
}

static void *
thread_main(void *arg)
{
	Thread *thread = arg;

	if (operation == PUSH)
		push(thread);
	else
		consume(thread);
	return NULL;
}

static bool
read_arguments(int argc, char **argv)
{
	static const char *const names[] = {"push", "consume", "drain"};

	if (argc != 7)
		return false;
	while (operation <= DRAIN && strcmp(argv[1], names[operation]) != 0)
		operation++;
	batch = atoi(argv[4]);
	messages = atoll(argv[6]);
	return operation <= DRAIN && batch > 0 && batch <= MAX_BATCH && atoi(argv[3]) > 0;
}

int
main(int argc, char **argv)
{
	Thread *threads;
	int64_t start;
	int n;

	if (!read_arguments(argc, argv))
	{
		fprintf(stderr, "usage: push|consume|drain QUEUE CONNECTIONS BATCH SECONDS MESSAGES\n");
		return 2;
	}
	options.payloads = getenv("BENCH_PAYLOADS");
	payloads_open();
	peer_create(argv[2]);
	n = atoi(argv[3]);
	start = clock_us(); /* a consumer may be sent messages as soon as it has connected */
	threads = calloc((size_t) n, sizeof(*threads));
	for (int i = 0; i < n; i++)
	{
		threads[i].random = (unsigned int) i;
		threads[i].connection =
			peer_connect(argv[2], operation == PUSH ? 0 : batch, operation == CONSUME);
	}
	start = operation == PUSH ? clock_us() : start;
	atomic_store(&last, clock_us());
	end_time = start + (int64_t) (atof(argv[5]) * 1e6);
	for (int i = 0; i < n; i++)
		pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i].thread, NULL);
	printf("{\"seconds\":%.6f,\"%s\":%" PRId64 "}\n", (double) (atomic_load(&last) - start) / 1e6,
		   operation == PUSH ? "pushed" : "acknowledged", (int64_t) atomic_load(&done));
	free(threads);
	return operation != PUSH && atomic_load(&done) != messages;
}
