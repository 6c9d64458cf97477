/*
 * db-floor.c
 *		The least that storing segments costs: rows through a libpq pipeline.
 *
 * A transaction is one INSERT of many rows into floor_segments and one into
 * floor_txns, tables like those of the queue.  No broker, no bookkeeping, no
 * offsets to agree on.  The server is the one that libpq's variables name.
 *
 * usage: db-floor CONNECTIONS SECONDS SEGMENTS BYTES MESSAGES
 *		SEGMENTS per transaction, BYTES and MESSAGES per segment
 */
#include <endian.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MAX_CONNECTIONS 16
#define MAX_SEGMENTS 1000
#define DEPTH 4 /* transactions in a pipeline */
#define HASH_BYTES 16
#define COLUMNS 4 /* that are parameters: partition, first and last offset, bytes */
#define UUID_BYTES 16

typedef struct Writer
{
	PGconn *conn;
	int number;
	int64_t next_offset;
	int64_t committed;
	const char *values[MAX_SEGMENTS * COLUMNS];
	int lengths[MAX_SEGMENTS * COLUMNS];
	int formats[MAX_SEGMENTS * COLUMNS];
	unsigned char ids[MAX_SEGMENTS][UUID_BYTES];
	uint64_t offsets[MAX_SEGMENTS][2]; /* big-endian */
	pthread_t thread;
} Writer;

static int segments, messages;
static char *blob, *hashes;
static int blob_bytes;
static double end_time;

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static void
fail(const PGconn *conn)
{
	fprintf(stderr, "db-floor: %s", PQerrorMessage(conn));
	exit(1);
}

static void
prepare(PGconn *conn, const char *name, const char *table)
{
	size_t size = 100 + (size_t) segments * 80;
	char *text = malloc(size);
	int len = snprintf(text, size, "INSERT INTO %s VALUES ", table);
	PGresult *result;

	for (int i = 0; i < segments; i++)
		len += snprintf(text + len, size - (size_t) len, "%s($%d::uuid,$%d,$%d,now(),$%d)",
						i ? "," : "", i * COLUMNS + 1, i * COLUMNS + 2, i * COLUMNS + 3,
						i * COLUMNS + 4);
	result = PQprepare(conn, name, text, 0, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail(conn);
	PQclear(result);
	free(text);
}

static void
send_insert(Writer *writer, const char *name, const char *bytes, int len)
{
	for (int i = 0; i < segments; i++)
	{
		writer->values[i * COLUMNS + 3] = bytes;
		writer->lengths[i * COLUMNS + 3] = len;
	}
	if (!PQsendQueryPrepared(writer->conn, name, segments * COLUMNS, writer->values,
							 writer->lengths, writer->formats, 0))
		fail(writer->conn);
}

static void
send_transaction(Writer *writer)
{
	for (int i = 0; i < segments; i++)
	{
		writer->offsets[i][0] = htobe64((uint64_t) writer->next_offset);
		writer->offsets[i][1] = htobe64((uint64_t) (writer->next_offset + messages - 1));
	}
	writer->next_offset += messages;
	send_insert(writer, "segments", blob, blob_bytes);
	send_insert(writer, "txns", hashes, messages * HASH_BYTES);
	if (!PQpipelineSync(writer->conn))
		fail(writer->conn);
}

/* Reads up to the synchronisation point that follows the commit. */
static void
await_commit(Writer *writer)
{
	while (true)
	{
		PGresult *result = PQgetResult(writer->conn);
		ExecStatusType status = result ? PQresultStatus(result) : PGRES_COMMAND_OK;

		PQclear(result);
		if (status == PGRES_PIPELINE_SYNC)
			break;
		if (status != PGRES_COMMAND_OK)
			fail(writer->conn);
	}
	writer->committed++;
}

static void *
write_transactions(void *arg)
{
	Writer *writer = arg;
	int in_flight = 0;

	while (seconds_now() < end_time)
	{
		for (; in_flight < DEPTH; in_flight++)
			send_transaction(writer);
		await_commit(writer);
		in_flight--;
	}
	for (; in_flight > 0; in_flight--)
		await_commit(writer);
	return NULL;
}

static void
fill_randomly(void *bytes, size_t len)
{
	for (size_t done = 0; done < len;)
	{
		ssize_t n = getrandom((char *) bytes + done, len - done, 0);

		done += n > 0 ? (size_t) n : 0;
	}
}

static char *
random_bytes(int len)
{
	char *bytes = malloc((size_t) len);

	fill_randomly(bytes, (size_t) len);
	return bytes;
}

/* Each writer has partitions of its own, so that nobody waits. */
static void
open_writer(Writer *writer, int number)
{
	writer->number = number;
	writer->conn = PQconnectdb("");
	if (PQstatus(writer->conn) != CONNECTION_OK)
		fail(writer->conn);
	prepare(writer->conn, "segments", "floor_segments");
	prepare(writer->conn, "txns", "floor_txns");
	if (!PQenterPipelineMode(writer->conn))
		fail(writer->conn);
	fill_randomly(writer->ids, sizeof(writer->ids));
	for (int i = 0; i < segments; i++)
	{
		int at = i * COLUMNS;

		for (int j = 0; j < COLUMNS; j++)
			writer->formats[at + j] = 1;
		writer->values[at] = (const char *) writer->ids[i];
		writer->lengths[at] = UUID_BYTES;
		writer->values[at + 1] = (const char *) &writer->offsets[i][0];
		writer->values[at + 2] = (const char *) &writer->offsets[i][1];
		writer->lengths[at + 1] = writer->lengths[at + 2] = sizeof(uint64_t);
	}
}

int
main(int argc, char **argv)
{
	static Writer writers[MAX_CONNECTIONS];
	int n = argc == 6 ? atoi(argv[1]) : 0;
	int64_t committed = 0;
	double start;

	segments = n > 0 ? atoi(argv[3]) : 0;
	if (n < 1 || n > MAX_CONNECTIONS || segments < 1 || segments > MAX_SEGMENTS)
	{
		fprintf(stderr, "usage: db-floor CONNECTIONS SECONDS SEGMENTS BYTES MESSAGES\n");
		return 2;
	}
	blob_bytes = atoi(argv[4]);
	messages = atoi(argv[5]);
	blob = random_bytes(blob_bytes);
	hashes = random_bytes(messages * HASH_BYTES);
	for (int i = 0; i < n; i++)
		open_writer(&writers[i], i);
	start = seconds_now();
	end_time = start + atof(argv[2]);
	for (int i = 0; i < n; i++)
		pthread_create(&writers[i].thread, NULL, write_transactions, &writers[i]);
	for (int i = 0; i < n; i++)
		pthread_join(writers[i].thread, NULL);
	for (int i = 0; i < n; i++)
	{
		committed += writers[i].committed;
		PQfinish(writers[i].conn);
	}
	printf("{\"seconds\":%.6f,\"commits\":%" PRId64 ",\"pushed\":%" PRId64 "}\n",
		   seconds_now() - start, committed, committed * segments * messages);
	free(blob);
	free(hashes);
	return 0;
}
