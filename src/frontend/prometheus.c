/*
 * prometheus.c
 *		GET /metrics/prometheus
 *
 * This process's metrics from memory, then those of the queues from the
 * database, if it answers.
 */
#include "status.h"

#include "clock.h"
#include "db.h"
#include "maintenance.h"
#include "spool.h"
#include "worker.h"

typedef struct Family
{
	const char *name;
	const char *kind;
	const char *help;
} Family;

static void
append_family(Buf *out, const Family *family, const char *labels, double value)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s%s %.12g\n", family->name, family->help,
			   family->name, family->kind, family->name, labels, value);
}

static void
append_counters(Buf *out)
{
	static const struct
	{
		Family family;
		Metric metric;
	} rows[] = {
		{{"queen_process_push_requests_total", "counter", "Push requests"}, METRIC_PUSH_REQUESTS},
		{{"queen_process_push_messages_total", "counter", "Messages stored"}, METRIC_PUSH_MESSAGES},
		{{"queen_process_duplicates_total", "counter", "Messages refused as duplicates"},
		 METRIC_PUSH_DUPLICATES},
		{{"queen_process_pop_requests_total", "counter", "Pop requests"}, METRIC_POP_REQUESTS},
		{{"queen_process_pop_messages_total", "counter", "Messages delivered"},
		 METRIC_POP_MESSAGES},
		{{"queen_process_ack_requests_total", "counter", "Acknowledgement requests"},
		 METRIC_ACK_REQUESTS},
		{{"queen_process_ack_messages_total", "counter", "Messages acknowledged"},
		 METRIC_ACK_MESSAGES},
		{{"queen_process_db_errors_total", "counter", "Database calls that failed"},
		 METRIC_DB_ERRORS},
		{{"queen_process_corrupt_segments_total", "counter", "Segments that did not decode"},
		 METRIC_CORRUPT_SEGMENTS},
		{{"queen_parked_long_polls", "gauge", "Pops that wait"}, METRIC_PARKED},
		{{"queen_db_pool_size", "gauge", "Database connections"}, METRIC_DB_UP},
		{{"queen_db_pool_active", "gauge", "Database connections with a call in flight"},
		 METRIC_DB_ACTIVE},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		append_family(out, &rows[i].family, "", (double) metrics_total(rows[i].metric));
}

static void
append_spool(Buf *out, Worker *worker)
{
	static const Family pending = {"queen_file_buffer_pending", "gauge", "Messages in the spool"};
	static const Family failed = {"queen_file_buffer_failed", "gauge",
								  "Messages of the spool that the database refused"};
	static const Family healthy = {"queen_file_buffer_db_healthy", "gauge",
								   "1 while the database takes pushes"};
	static const Family mode = {"queen_maintenance_mode_enabled", "gauge",
								"1 while pushes go to the spool by request"};
	SpoolState state = spool_state();

	append_family(out, &pending, "", (double) state.pending);
	append_family(out, &failed, "", (double) state.failed);
	append_family(out, &healthy, "", db_lane_down(worker->db, LANE_PUSH) ? 0 : 1);
	append_family(out, &mode, "", maintenance_push() ? 1 : 0);
}

static void
append_process(Buf *out)
{
	static const Family uptime = {"queen_uptime_seconds", "gauge", "Age of the process"};
	static const Family resident = {"queen_process_resident_memory_bytes", "gauge",
									"Resident memory"};
	static const Family lag = {"queen_event_loop_lag_avg_milliseconds", "gauge",
							   "How late the event loops are lately"};
	static const Family idle = {"queen_db_pool_idle", "gauge",
								"Database connections without a call"};
	static const Family calls = {"queen_batches_fired_total", "counter",
								 "Database transactions of pushes"};
	static const Family items = {"queen_batch_items_fired_total", "counter",
								 "Messages stored in them"};
	static const Family fused = {"queen_fusion_items_per_batch", "gauge",
								 "Messages per transaction since the start"};
	double pushed = (double) metrics_total(METRIC_PUSH_MESSAGES);
	double fired = (double) metrics_total(METRIC_PUSH_CALLS);

	append_family(out, &uptime, "", (double) (clock_ms() - process_start_ms) / 1000);
	append_family(out, &resident, "", (double) metrics_resident_bytes());
	append_family(out, &lag, "", (double) metrics_total(METRIC_LOOP_LAG_US) / 1000 / n_workers);
	append_counters(out);
	append_family(out, &idle, "",
				  (double) metrics_total(METRIC_DB_UP) - (double) metrics_total(METRIC_DB_ACTIVE));
	append_family(out, &calls, "{op=\"push\"}", fired);
	append_family(out, &items, "{op=\"push\"}", pushed);
	append_family(out, &fused, "{op=\"push\"}", fired > 0 ? pushed / fired : 0);
}

static void
on_metrics(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};

	append_process(&body);
	append_spool(&body, req->worker);
	if (error == NULL && !pgcol_is_null(res, 0, 0))
	{
		Span text = pgcol_span(res, 0, 0);

		buf_append(&body, text.ptr, text.len);
	}
	PQclear(res);
	http_reply_text(req, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

void
prometheus_handler(Request *req)
{
	db_submit(req->worker->db, LANE_ADMIN, db_call_new(CALL_METRICS, on_metrics, req));
}
