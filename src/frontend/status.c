/*
 * status.c
 *		GET /health, /status, /metrics
 *
 * Health asks the database; the others answer from memory.
 */
#include "status.h"

#include "clock.h"
#include "db.h"
#include "json.h"
#include "worker.h"

#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void
reply_unhealthy(Request *req, const char *error)
{
	Buf body = {0};

	buf_append_str(&body, "{\"status\":\"unhealthy\",\"database\":\"disconnected\","
						  "\"engine\":\"" ENGINE_NAME "\",\"error\":");
	json_write_string(&body, error, strlen(error));
	buf_append_char(&body, '}');
	http_reply(req, 503, &body);
}

static void
on_health(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};

	if (error)
	{
		reply_unhealthy(req, error->message);
		return;
	}
	buf_append_str(&body, "{\"status\":\"healthy\",\"database\":\"connected\","
						  "\"engine\":\"" ENGINE_NAME "\",\"version\":");
	json_write_string(&body, PQgetvalue(res, 0, 0), (size_t) PQgetlength(res, 0, 0));
	buf_append_char(&body, '}');
	PQclear(res);
	http_reply(req, 200, &body);
}

/*
 * Healthy means that work of every kind would be taken now.  Asked on a
 * connection of its own, so that a slow call of another kind is no illness.
 */
void
health_handler(Request *req)
{
	static const DbLaneId working[] = {LANE_PUSH, LANE_READ, LANE_WAIT, LANE_ADMIN};
	Db *db = req->worker->db;

	for (size_t i = 0; i < sizeof(working) / sizeof(working[0]); i++)
		if (db_lane_down(db, working[i]))
		{
			reply_unhealthy(req, "database not available");
			return;
		}
	db_submit(db, LANE_HEALTH, db_call_new(CALL_HEALTH, on_health, req));
}

void
status_handler(Request *req)
{
	Buf body = {0};

	buf_append_str(&body, "{\"status\":\"ok\",\"engine\":\"" ENGINE_NAME "\"}");
	http_reply(req, 200, &body);
}

uint64_t
metrics_total(Metric metric)
{
	uint64_t total = 0;

	for (int i = 0; i < n_workers; i++)
		total += metrics_get(&workers[i].metrics, metric);
	return total;
}

long
metrics_resident_bytes(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file)
	{
		if (fscanf(file, "%*s %ld", &pages) != 1)
			pages = 0;
		fclose(file);
	}
	return pages * sysconf(_SC_PAGESIZE);
}

static double
seconds_of(struct timeval tv)
{
	return (double) tv.tv_sec + (double) tv.tv_usec / 1e6;
}

/* As of the last tick of each thread. */
static void
append_database(Buf *body)
{
	long long up = (long long) metrics_total(METRIC_DB_UP);
	long long active = (long long) metrics_total(METRIC_DB_ACTIVE);

	buf_printf(body,
			   "\"database\":{\"poolSize\":%lld,\"idleConnections\":%lld,\"waitingRequests\":%lld}",
			   up, up - active, (long long) metrics_total(METRIC_DB_WAITING));
}

static void
append_queen(Buf *body)
{
	static const struct
	{
		const char *name;
		Metric metric;
	} rows[] = {
		{"pushRequests", METRIC_PUSH_REQUESTS},		{"pushMessages", METRIC_PUSH_MESSAGES},
		{"pushDuplicates", METRIC_PUSH_DUPLICATES}, {"pushCalls", METRIC_PUSH_CALLS},
		{"pushSegments", METRIC_PUSH_SEGMENTS},		{"popRequests", METRIC_POP_REQUESTS},
		{"popMessages", METRIC_POP_MESSAGES},		{"ackRequests", METRIC_ACK_REQUESTS},
		{"ackMessages", METRIC_ACK_MESSAGES},		{"parkedPops", METRIC_PARKED},
		{"databaseErrors", METRIC_DB_ERRORS},		{"corruptSegments", METRIC_CORRUPT_SEGMENTS},
		{"errors4xx", METRIC_ERRORS_4XX},			{"errors5xx", METRIC_ERRORS_5XX}};

	buf_append_str(body, "\"queen\":{");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		buf_printf(body, "%s\"%s\":%llu", i ? "," : "", rows[i].name,
				   (unsigned long long) metrics_total(rows[i].metric));
	buf_append_char(body, '}');
}

void
metrics_handler(Request *req)
{
	uint64_t requests = metrics_total(METRIC_REQUESTS);
	uint64_t messages = metrics_total(METRIC_PUSH_MESSAGES) + metrics_total(METRIC_POP_MESSAGES);
	struct mallinfo2 heap = mallinfo2();
	struct rusage usage;
	double uptime;
	Buf body = {0};

	uptime = (double) (clock_ms() - process_start_ms) / 1000.0;
	getrusage(RUSAGE_SELF, &usage);
	buf_printf(&body,
			   "{\"uptime\":%.3f,\"requests\":{\"total\":%llu,\"rate\":%.3f},"
			   "\"messages\":{\"total\":%llu,\"rate\":%.3f},",
			   uptime, (unsigned long long) requests, uptime > 0 ? (double) requests / uptime : 0,
			   (unsigned long long) messages, uptime > 0 ? (double) messages / uptime : 0);
	append_database(&body);
	buf_printf(&body,
			   ",\"memory\":{\"rss\":%ld,\"heapTotal\":%zu,\"heapUsed\":%zu,\"external\":%zu,"
			   "\"arrayBuffers\":0},\"cpu\":{\"user\":%.3f,\"system\":%.3f},",
			   metrics_resident_bytes(), heap.arena + heap.hblkhd, heap.uordblks + heap.hblkhd,
			   heap.hblkhd, seconds_of(usage.ru_utime), seconds_of(usage.ru_stime));
	append_queen(&body);
	buf_append_char(&body, '}');
	http_reply(req, 200, &body);
}
