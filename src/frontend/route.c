/*
 * route.c
 *		The table of routes.
 */
#include "route.h"

#include "ack.h"
#include "admin.h"
#include "lease.h"
#include "maintenance.h"
#include "pop.h"
#include "push.h"
#include "reports.h"
#include "status.h"
#include "streams.h"
#include "transaction.h"

static const Route routes[] = {
	{"POST", "/api/v1/push", LEVEL_WRITE_ONLY, push_handler},
	{"GET", "/api/v1/pop", LEVEL_READ_WRITE, discovery_handler},
	{"GET", "/api/v1/pop/queue/:queue", LEVEL_READ_WRITE, pop_handler},
	{"GET", "/api/v1/pop/queue/:queue/partition/:partition", LEVEL_READ_WRITE, pop_handler},
	{"POST", "/api/v1/ack", LEVEL_READ_WRITE, ack_handler},
	{"POST", "/api/v1/ack/batch", LEVEL_READ_WRITE, ack_batch_handler},
	{"POST", "/api/v1/lease/:leaseId/extend", LEVEL_READ_WRITE, lease_extend_handler},
	{"POST", "/api/v1/configure", LEVEL_READ_WRITE, configure_handler},
	{"GET", "/api/v1/resources/queues", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/resources/queues/:queue", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/resources/queues/:queue/depth", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/resources/namespaces", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/resources/tasks", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/resources/overview", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/status", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/status/queues", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/status/queues/:queue", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/status/analytics", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/queue-lag", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/queue-ops", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/queue-parked-replicas", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/retention", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/worker-metrics", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/workload", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/dlq-signatures", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/partition-liveness", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/postgres-stats", LEVEL_READ_ONLY, report_handler},
	{"GET", "/api/v1/analytics/system-metrics", LEVEL_READ_ONLY, system_metrics_handler},
	{"DELETE", "/api/v1/resources/queues/:queue", LEVEL_ADMIN, delete_queue_handler},
	{"POST", "/api/v1/transaction", LEVEL_READ_WRITE, transaction_handler},
	{"GET", "/api/v1/dlq", LEVEL_READ_ONLY, dlq_handler},
	{"DELETE", "/api/v1/dlq", LEVEL_ADMIN, purge_dlq_handler},
	{"POST", "/api/v1/dlq/:id/replay", LEVEL_READ_WRITE, replay_handler},
	{"GET", "/api/v1/messages", LEVEL_READ_ONLY, messages_handler},
	{"GET", "/api/v1/messages/:partitionId/:transactionId", LEVEL_READ_ONLY, message_handler},
	{"DELETE", "/api/v1/messages/:partitionId/:transactionId", LEVEL_READ_WRITE,
	 delete_message_handler},
	{"POST", "/api/v1/messages/:partitionId/:transactionId/retry", LEVEL_READ_WRITE, retry_handler},
	{"GET", "/api/v1/consumer-groups", LEVEL_READ_ONLY, groups_handler},
	{"GET", "/api/v1/consumer-groups/lagging", LEVEL_READ_ONLY, lagging_handler},
	{"GET", "/api/v1/consumer-groups/:group", LEVEL_READ_ONLY, group_handler},
	{"DELETE", "/api/v1/consumer-groups/:group", LEVEL_ADMIN, delete_group_handler},
	{"DELETE", "/api/v1/consumer-groups/:group/queues/:queue", LEVEL_ADMIN,
	 delete_group_queue_handler},
	{"POST", "/api/v1/consumer-groups/:group/subscription", LEVEL_READ_WRITE,
	 move_subscription_handler},
	{"POST", "/api/v1/consumer-groups/:group/queues/:queue/seek", LEVEL_READ_WRITE, seek_handler},
	{"POST", "/api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek",
	 LEVEL_READ_WRITE, seek_partition_handler},
	{"POST", "/api/v1/stats/refresh", LEVEL_ADMIN, refresh_statistics_handler},
	{"POST", "/api/v1/traces", LEVEL_READ_WRITE, trace_handler},
	{"GET", "/api/v1/traces/names", LEVEL_READ_ONLY, trace_names_handler},
	{"GET", "/api/v1/traces/by-name/:name", LEVEL_READ_ONLY, traces_by_name_handler},
	{"GET", "/api/v1/traces/:partitionId/:transactionId", LEVEL_READ_ONLY, traces_handler},
	{"GET", "/api/v1/status/buffers", LEVEL_READ_ONLY, buffers_handler},
	{"GET", "/api/v1/system/maintenance", LEVEL_ADMIN, maintenance_handler},
	{"POST", "/api/v1/system/maintenance", LEVEL_ADMIN, maintenance_handler},
	{"GET", "/api/v1/system/maintenance/pop", LEVEL_ADMIN, maintenance_handler},
	{"POST", "/api/v1/system/maintenance/pop", LEVEL_ADMIN, maintenance_handler},
	{"GET", "/api/v1/system/shared-state", LEVEL_ADMIN, shared_state_handler},
	{"POST", "/internal/api/notify", LEVEL_ADMIN, notify_handler},
	{"GET", "/internal/api/shared-state/stats", LEVEL_ADMIN, internal_stats_handler},
	{"GET", "/internal/api/inter-instance/stats", LEVEL_ADMIN, internal_stats_handler},
	{"POST", "/streams/v1/queries", LEVEL_READ_WRITE, stream_query_handler},
	{"POST", "/streams/v1/state/get", LEVEL_READ_ONLY, stream_state_handler},
	{"POST", "/streams/v1/cycle", LEVEL_READ_WRITE, stream_cycle_handler},
	{"GET", "/health", LEVEL_PUBLIC, health_handler},
	{"GET", "/status", LEVEL_READ_ONLY, status_handler},
	{"GET", "/metrics", LEVEL_PUBLIC, metrics_handler},
	{"GET", "/metrics/prometheus", LEVEL_PUBLIC, prometheus_handler},
	{"GET", "/auth/me", LEVEL_PUBLIC, me_handler},
	{"GET", "/auth/login", LEVEL_PUBLIC, login_handler},
	{"POST", "/auth/logout", LEVEL_PUBLIC, logout_handler},
};

/* Compares the target's segments with the pattern's, collecting parameters. */
static bool
path_matches(const Target *target, const char *pattern, Span *params)
{
	int i = 0;
	int n_params = 0;

	params[0] = params[1] = params[2] = (Span){NULL, 0};
	while (*pattern == '/')
	{
		size_t len = strcspn(++pattern, "/");

		if (i == target->n_segments)
			return false;
		if (*pattern == ':')
			params[n_params++] = target->segments[i];
		else if (!span_equals(target->segments[i], (Span){pattern, len}))
			return false;
		pattern += len;
		i++;
	}
	return i == target->n_segments;
}

/* HEAD is GET without the body, but a pop would lease messages that nobody reads. */
static bool
method_matches(const Route *route, const char *method)
{
	if (strcmp(method, "HEAD") == 0)
		return strcmp(route->method, "GET") == 0 && route->handler != pop_handler &&
			   route->handler != discovery_handler;
	return strcmp(route->method, method) == 0;
}

static RouteMatch
find(Request *req, const char *method, Buf *allow)
{
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
	{
		if (!path_matches(&req->target, routes[i].path, req->params))
			continue;
		if (method_matches(&routes[i], method))
		{
			req->route = &routes[i];
			return ROUTE_FOUND;
		}
		buf_append_str(allow, allow->len ? ", " : "");
		buf_append_str(allow, routes[i].method);
	}
	return allow->len ? ROUTE_WRONG_METHOD : ROUTE_NONE;
}

/* A slash at the end is an empty name if a route takes one (the queue ""), else nothing. */
RouteMatch
route_find(Request *req, const char *method, Buf *allow)
{
	Target *target = &req->target;

	if (target->trailing_slash)
	{
		RouteMatch match;

		target->segments[target->n_segments++] = SPAN_LITERAL("");
		match = find(req, method, allow);
		if (match != ROUTE_NONE)
			return match;
		target->n_segments--;
	}
	return find(req, method, allow);
}
