/*
 * reports.c
 *		What there is and what happened: the resources, status and analytics routes.
 */
#include "reports.h"

#include "admin.h"
#include "clock.h"
#include "db.h"
#include "json.h"
#include "names.h"
#include "route.h"
#include "worker.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define REPORT_MAX_ARGS 6
#define ROWS_DEFAULT 100
#define ROWS_MAX 1000
#define CACHE_SLOTS 32
#define CACHE_MAX_BYTES (1024 * 1024)
#define CACHE_MAX_AGE_MS 10000

/*
 * Arguments come from the query, by name, or from the path.  "name=value" has
 * a default; a number is marked by '#'.
 */
typedef struct Report
{
	const char *path;
	const char *args[REPORT_MAX_ARGS]; /* after the tenant; NULL ends them */
	CallId call;
	bool global;	   /* takes no tenant */
	bool cached;	   /* "stats=cached" may get an answer of before */
	bool with_age;	   /* the front end adds statsAge */
	bool with_workers; /* and workers */
} Report;

#define FILTERS "queue", "namespace", "task"
#define FILTERS_AND_RANGE FILTERS, "from", "to"
#define RESOURCES "/api/v1/resources/"
#define STATUS "/api/v1/status"
#define ANALYTICS "/api/v1/analytics/"

static const Report reports[] = {
	{.path = RESOURCES "queues", .call = CALL_QUEUES, .cached = true},
	{.path = RESOURCES "queues/:queue", .call = CALL_QUEUE, .args = {":queue"}},
	{.path = RESOURCES "queues/:queue/depth",
	 .call = CALL_QUEUE_DEPTH,
	 .args = {":queue", "group"}},
	{.path = RESOURCES "namespaces", .call = CALL_NAMESPACES, .cached = true},
	{.path = RESOURCES "tasks", .call = CALL_TASKS, .cached = true},
	{.path = RESOURCES "overview", .call = CALL_OVERVIEW, .cached = true, .with_age = true},
	{.path = STATUS,
	 .call = CALL_STATUS,
	 .args = {FILTERS_AND_RANGE},
	 .with_age = true,
	 .with_workers = true},
	{.path = STATUS "/queues", .call = CALL_STATUS_QUEUES, .args = {FILTERS, "#limit", "#offset"}},
	{.path = STATUS "/queues/:queue", .call = CALL_STATUS_QUEUE, .args = {":queue"}},
	{.path = STATUS "/analytics",
	 .call = CALL_STATUS_ANALYTICS,
	 .args = {FILTERS_AND_RANGE, "interval=hour"}},
	{.path = ANALYTICS "queue-lag", .call = CALL_ANALYTICS_QUEUE_LAG, .args = {FILTERS_AND_RANGE}},
	{.path = ANALYTICS "queue-ops", .call = CALL_ANALYTICS_QUEUE_OPS, .args = {FILTERS_AND_RANGE}},
	{.path = ANALYTICS "queue-parked-replicas",
	 .call = CALL_ANALYTICS_PARKED,
	 .args = {FILTERS_AND_RANGE}},
	{.path = ANALYTICS "retention",
	 .call = CALL_ANALYTICS_RETENTION,
	 .args = {FILTERS_AND_RANGE, "groupBy="}},
	{.path = ANALYTICS "worker-metrics",
	 .call = CALL_ANALYTICS_MESSAGES,
	 .args = {FILTERS_AND_RANGE},
	 .with_workers = true},
	{.path = ANALYTICS "workload",
	 .call = CALL_ANALYTICS_WORKLOAD,
	 .args = {FILTERS_AND_RANGE, "groupBy=namespace"}},
	{.path = ANALYTICS "dlq-signatures",
	 .call = CALL_ANALYTICS_DLQ,
	 .args = {"!queue", "from", "to"}},
	{.path = ANALYTICS "partition-liveness", .call = CALL_ANALYTICS_LIVENESS, .args = {FILTERS}},
	{.path = ANALYTICS "postgres-stats", .call = CALL_ANALYTICS_POSTGRES, .global = true},
};

/* --- the cache ------------------------------------------------------------- */

typedef struct CachedReport
{
	const Report *report; /* NULL: free */
	Uuid tenant;
	int64_t taken_at; /* monotonic milliseconds */
	Buf json;
} CachedReport;

struct Reports
{
	CachedReport slots[CACHE_SLOTS];
};

/* Answers from before it, monotonic milliseconds, are not repeated by any thread. */
static _Atomic int64_t refreshed_at;

void
reports_refresh(void)
{
	atomic_store(&refreshed_at, clock_ms());
}

Reports *
reports_new(void)
{
	return calloc(1, sizeof(Reports));
}

void
reports_free(Reports *cache)
{
	for (int i = 0; i < CACHE_SLOTS; i++)
		buf_free(&cache->slots[i].json);
	free(cache);
}

static bool
holds(const CachedReport *slot, const Report *report, const Uuid *tenant)
{
	return slot->report == report && memcmp(&slot->tenant, tenant, sizeof(*tenant)) == 0;
}

static const CachedReport *
cache_find(const Reports *cache, const Report *report, const Uuid *tenant)
{
	for (int i = 0; i < CACHE_SLOTS; i++)
		if (holds(&cache->slots[i], report, tenant) &&
			cache->slots[i].taken_at > atomic_load(&refreshed_at) &&
			clock_ms() - cache->slots[i].taken_at < CACHE_MAX_AGE_MS)
			return &cache->slots[i];
	return NULL;
}

/* In place of the same report's last answer, or of the oldest one. */
static void
cache_keep(Reports *cache, const Report *report, const Uuid *tenant, Span json)
{
	CachedReport *slot = &cache->slots[0];

	if (json.len > CACHE_MAX_BYTES)
		return;
	for (int i = 0; i < CACHE_SLOTS && !holds(slot, report, tenant); i++)
		if (holds(&cache->slots[i], report, tenant) || cache->slots[i].taken_at < slot->taken_at)
			slot = &cache->slots[i];
	slot->report = report;
	slot->tenant = *tenant;
	slot->taken_at = clock_ms();
	buf_reset(&slot->json);
	buf_append(&slot->json, json.ptr, json.len);
	if (slot->json.failed)
	{
		buf_free(&slot->json);
		slot->report = NULL;
	}
}

/* --- the answer ------------------------------------------------------------ */

static double
milliseconds(uint64_t us)
{
	return (double) us / 1000;
}

static void
append_workers(Buf *out)
{
	char host[256] = "";
	char now[32];
	time_t seconds = time(NULL);
	struct tm tm;

	gethostname(host, sizeof(host) - 1);
	strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
	buf_append_str(out, ",\"workers\":[");
	for (int i = 0; i < n_workers; i++)
	{
		const Metrics *metrics = &workers[i].metrics;
		uint64_t up = metrics_get(metrics, METRIC_DB_UP);

		buf_append_str(out, i ? ",{\"hostname\":" : "{\"hostname\":");
		json_write_string(out, host, strlen(host));
		buf_printf(out,
				   ",\"workerId\":%d,\"avgEventLoopLagMs\":%.1f,\"maxEventLoopLagMs\":%.1f,"
				   "\"freeSlots\":%llu,\"dbConnections\":%llu,\"jobQueueSize\":%llu,"
				   "\"messagesProcessed\":%llu,\"lastSeen\":\"%s\"}",
				   i, milliseconds(metrics_get(metrics, METRIC_LOOP_LAG_US)),
				   milliseconds(metrics_get(metrics, METRIC_LOOP_LAG_MAX_US)),
				   (unsigned long long) (up - metrics_get(metrics, METRIC_DB_ACTIVE)),
				   (unsigned long long) up,
				   (unsigned long long) metrics_get(metrics, METRIC_DB_WAITING),
				   (unsigned long long) (metrics_get(metrics, METRIC_PUSH_MESSAGES) +
										 metrics_get(metrics, METRIC_POP_MESSAGES)),
				   now);
	}
	buf_append_char(out, ']');
}

/* The object that the database made, with what the front end adds before its last brace. */
static void
reply_report(Request *req, const Report *report, Span json, int64_t age_ms)
{
	Buf body = {0};

	buf_append(&body, json.ptr, json.len);
	if (report->with_age || report->with_workers)
		body.len--;
	if (report->with_workers)
		append_workers(&body);
	if (report->with_age)
		buf_printf(&body, ",\"statsAge\":%lld", (long long) (age_ms / 1000));
	if (report->with_age || report->with_workers)
		buf_append_char(&body, '}');
	http_reply(req, 200, &body);
}

static const Report *
find_report(const Request *req)
{
	const Report *report = reports;

	while (strcmp(report->path, req->route->path) != 0)
		report++;
	return report;
}

static void
on_report(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	const Report *report = find_report(req);

	if (error)
		admin_reply_error(req, error);
	else if (pgcol_is_null(res, 0, 0))
		http_reply_error(req, 404, "Queue not found");
	else
	{
		Span json = pgcol_span(res, 0, 0);

		if (report->cached)
			cache_keep(req->worker->reports, report, &req->tenant, json);
		reply_report(req, report, json, 0);
	}
	PQclear(res);
}

/* --- the question ----------------------------------------------------------- */

/* Sets parameter "param"; false when the request was answered with an error. */
static bool
set_argument(Request *req, DbCall *call, int param, const char *arg)
{
	char name[32];
	size_t len = strcspn(arg, "=");
	Span value;
	const char *why;

	if (*arg == '#')
	{
		bool limit = strcmp(arg, "#limit") == 0;

		db_call_int(call, param,
					limit ? admin_number_arg(req, "limit", ROWS_DEFAULT, ROWS_MAX)
						  : admin_number_arg(req, "offset", 0, INT32_MAX));
		return true;
	}
	snprintf(name, sizeof(name), "%.*s", (int) len, arg + strspn(arg, ":!"));
	value = *arg == ':' ? req->params[0] : admin_filter_arg(req, name);
	if (value.ptr == NULL && arg[len] == '=')
		value = span_of(arg + len + 1);
	why = value.ptr ? queue_name_check(value) : *arg == '!' ? "is required" : NULL;
	if (why)
	{
		char text[128];

		snprintf(text, sizeof(text), "%s %s", name, why);
		http_reply_error(req, 400, text);
		return false;
	}
	db_call_text(call, param, value);
	return true;
}

void
report_handler(Request *req)
{
	const Report *report = find_report(req);
	int param = 0;
	DbCall *call;

	if (report->cached && span_equals(target_arg(&req->target, "stats"), SPAN_LITERAL("cached")))
	{
		const CachedReport *kept = cache_find(req->worker->reports, report, &req->tenant);

		if (kept)
		{
			reply_report(req, report, (Span){kept->json.data, kept->json.len},
						 clock_ms() - kept->taken_at);
			return;
		}
	}
	call = db_call_new(report->call, on_report, req);
	if (!report->global)
		db_call_uuid(call, param++, &req->tenant);
	for (int i = 0; i < REPORT_MAX_ARGS && report->args[i]; i++)
		if (!set_argument(req, call, param++, report->args[i]))
		{
			db_call_free(call);
			return;
		}
	db_submit(req->worker->db, LANE_ADMIN, call);
}

/* --- this process ------------------------------------------------------------ */

static void
append_sample(Buf *out, const char *name, double value)
{
	buf_printf(out, "\"%s\":{\"avg\":%.3f,\"min\":%.3f,\"max\":%.3f,\"last\":%.3f}", name, value,
			   value, value, value);
}

/* No process remembers how it was: a series of one point, and only this process's. */
void
system_metrics_handler(Request *req)
{
	char host[256] = "";
	char now[32];
	time_t seconds = time(NULL);
	double uptime = (double) (clock_ms() - process_start_ms) / 1000;
	uint64_t up = metrics_total(METRIC_DB_UP);
	struct rusage usage;
	struct tm tm;
	Buf body = {0};

	gethostname(host, sizeof(host) - 1);
	getrusage(RUSAGE_SELF, &usage);
	strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
	buf_append_str(&body, "{\"replicas\":[{\"hostname\":");
	json_write_string(&body, host, strlen(host));
	buf_printf(&body,
			   ",\"port\":%d,\"workers\":%d,\"timeSeries\":[{\"timestamp\":\"%s\",\"metrics\":{",
			   (int) req->worker->conf->port, n_workers, now);
	buf_append_str(&body, "\"cpu\":{");
	append_sample(&body, "userPct",
				  100 * ((double) usage.ru_utime.tv_sec + (double) usage.ru_utime.tv_usec / 1e6) /
					  (uptime > 0 ? uptime : 1));
	buf_append_char(&body, ',');
	append_sample(&body, "systemPct",
				  100 * ((double) usage.ru_stime.tv_sec + (double) usage.ru_stime.tv_usec / 1e6) /
					  (uptime > 0 ? uptime : 1));
	buf_append_str(&body, "},\"memory\":{");
	append_sample(&body, "rssMb", (double) metrics_resident_bytes() / (1024 * 1024));
	buf_append_str(&body, "},\"database\":{");
	append_sample(&body, "poolSize", (double) up);
	buf_append_char(&body, ',');
	append_sample(&body, "active", (double) metrics_total(METRIC_DB_ACTIVE));
	buf_append_str(&body, "},\"eventLoop\":{");
	append_sample(&body, "lagMs",
				  milliseconds(metrics_total(METRIC_LOOP_LAG_US)) / (n_workers ? n_workers : 1));
	buf_append_str(&body, "}}}]}]}");
	http_reply(req, 200, &body);
}
