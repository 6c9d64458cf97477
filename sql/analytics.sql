-- What happened, in buckets of time: the analytics routes.

CREATE FUNCTION queen.log_analytics_queue_lag(tenant uuid, of_queue text, of_namespace text,
                                              of_task text, since text, until text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w CONSTANT queen.log_window := queen.log_window(since, until, '1 hour');
BEGIN
    RETURN (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'queueName', s.queue, 'popCount', s.pops,
                   'avgLagMs', queen.log_average_lag(s.lag, s.popped),
                   'maxLagMs', s.max_lag, 'bucketMinutes', queen.log_window_json(w) -> 'bucketMinutes',
                   'bucketTime', queen.wire_bucket(s.bucket))
                   ORDER BY s.bucket, s.queue COLLATE "C"), '[]')
          FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS s);
END
$$;
COMMENT ON FUNCTION queen.log_analytics_queue_lag(uuid, text, text, text, text, text) IS
    'Age of messages when they were delivered, per bucket and queue: the answer of GET /api/v1/analytics/queue-lag. Raises 22023 for a bad range';

CREATE FUNCTION queen.log_analytics_queue_ops(tenant uuid, of_queue text, of_namespace text,
                                              of_task text, since text, until text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w CONSTANT queen.log_window := queen.log_window(since, until, '1 hour');
BEGIN
    RETURN queen.log_window_json(w) || (
        WITH held AS MATERIALIZED (
            SELECT q.name::text AS queue, count(p.id) AS partitions
              FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
              LEFT JOIN queen.log_partitions AS p ON p.queue_id = q.id
             GROUP BY q.name
        ), created AS MATERIALIZED (
            SELECT q.name::text AS queue, queen.log_bucket(w, p.created_at) AS bucket, count(*) AS n
              FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
              JOIN queen.log_partitions AS p ON p.queue_id = q.id
             WHERE p.created_at > w.since AND p.created_at <= w.until
             GROUP BY 1, 2
        ), sums AS MATERIALIZED (
            SELECT bucket, queue, coalesce(c.n, 0) AS created, coalesce(g.pushes, 0) AS pushes,
                   coalesce(g.pushed, 0) AS pushed, coalesce(g.popped, 0) AS popped,
                   coalesce(g.empty, 0) AS empty, coalesce(g.completed, 0) AS completed,
                   coalesce(g.failed, 0) AS failed,
                   queen.log_average_lag(g.lag, g.popped) AS avg_lag,
                   coalesce(g.max_lag, 0) AS max_lag, coalesce(g.parked, 0) AS parked
              FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS g
              FULL JOIN created AS c USING (bucket, queue)
        )
        SELECT jsonb_build_object(
                   'series', coalesce((
                       SELECT jsonb_agg(jsonb_build_object(
                           'bucket', queen.wire_bucket(s.bucket), 'queueName', s.queue,
                           'pushRequests', s.pushes, 'pushMessages', s.pushed,
                           'popMessages', s.popped, 'popEmpty', s.empty,
                           'ackRequests', s.completed + s.failed, 'ackSuccess', s.completed,
                           'ackFailed', s.failed, 'transactions', 0,
                           'partitionsCreated', s.created, 'partitionsDeleted', 0,
                           'partitionCount', coalesce(h.partitions, 0),
                           'avgLagMs', s.avg_lag, 'maxLagMs', s.max_lag,
                           'pushPerSecond', queen.log_rate(s.pushed, w),
                           'popPerSecond', queen.log_rate(s.popped, w),
                           'ackPerSecond', queen.log_rate(s.completed + s.failed, w),
                           'emptyPerSecond', queen.log_rate(s.empty, w), 'parkedCount', s.parked)
                           ORDER BY s.bucket, s.queue COLLATE "C")
                         FROM sums AS s
                         LEFT JOIN held AS h ON h.queue = s.queue), '[]'),
                   'queues', coalesce((SELECT jsonb_agg(h.queue ORDER BY h.queue COLLATE "C")
                                         FROM held AS h), '[]')));
END
$$;
COMMENT ON FUNCTION queen.log_analytics_queue_ops(uuid, text, text, text, text, text) IS
    'Operations per bucket and queue: the answer of GET /api/v1/analytics/queue-ops. Requests are segments for pushes and messages for acknowledgements, since front ends fuse requests. Raises 22023 for a bad range';

CREATE FUNCTION queen.log_analytics_parked(tenant uuid, of_queue text, of_namespace text,
                                           of_task text, since text, until text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w CONSTANT queen.log_window := queen.log_window(since, until, '1 hour');
BEGIN
    RETURN queen.log_window_json(w) || (
        SELECT jsonb_build_object(
                   'series', coalesce(jsonb_agg(jsonb_build_object(
                       'bucket', queen.wire_bucket(s.bucket), 'queueName', s.queue,
                       'hostname', NULL, 'workerId', NULL, 'parkedCount', s.parked)
                       ORDER BY s.bucket, s.queue COLLATE "C"), '[]'),
                   'replicas', '[]'::jsonb)
          FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS s);
END
$$;
COMMENT ON FUNCTION queen.log_analytics_parked(uuid, text, text, text, text, text) IS
    'Pops that waited, per bucket and queue, over all front ends: the answer of GET /api/v1/analytics/queue-parked-replicas. Raises 22023 for a bad range';

CREATE FUNCTION queen.log_analytics_retention(tenant uuid, of_queue text, of_namespace text,
                                              of_task text, since text, until text,
                                              group_by text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w    CONSTANT queen.log_window := queen.log_window(since, until, '1 day');
    sums jsonb;
BEGIN
    IF group_by NOT IN ('', 'queue') THEN
        RAISE EXCEPTION 'bad groupBy' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH events AS MATERIALIZED (
        SELECT queen.log_bucket(w, e.executed_at) AS bucket, q.name::text AS queue,
               e.retention_type AS rule, e.messages_deleted AS n
          FROM queen.retention_history AS e
          JOIN queen.log_partitions AS p ON p.id = e.partition_id
          JOIN queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q ON q.id = p.queue_id
         WHERE e.executed_at > w.since AND e.executed_at <= w.until
           AND e.retention_type <> '__partition_deleted__'
    ), counted AS MATERIALIZED (
        SELECT e.bucket, e.queue, GROUPING(e.bucket) = 1 AND GROUPING(e.queue) = 1 AS whole,
               GROUPING(e.bucket) = 0 AS by_bucket,
               jsonb_build_object(
                   'retentionMsgs', coalesce(sum(e.n) FILTER (WHERE e.rule = 'retention'), 0),
                   'completedRetentionMsgs',
                   coalesce(sum(e.n) FILTER (WHERE e.rule = 'completed_retention'), 0),
                   'evictionMsgs',
                   coalesce(sum(e.n) FILTER (WHERE e.rule = 'max_wait_time_eviction'), 0),
                   'totalMsgs', coalesce(sum(e.n), 0), 'eventCount', count(*)) AS counters
          FROM events AS e
         GROUP BY GROUPING SETS ((e.bucket), (e.queue), ())
    )
    SELECT jsonb_build_object(
               'series', coalesce((SELECT jsonb_agg(
                                              jsonb_build_object('bucket', queen.wire_bucket(c.bucket))
                                              || c.counters ORDER BY c.bucket)
                                     FROM counted AS c WHERE c.by_bucket), '[]'),
               'totals', (SELECT c.counters FROM counted AS c WHERE c.whole))
           || CASE WHEN group_by = 'queue'
                   THEN jsonb_build_object('queues', coalesce((
                            SELECT jsonb_agg(jsonb_build_object('queueName', c.queue) || c.counters
                                             ORDER BY c.queue COLLATE "C")
                              FROM counted AS c WHERE NOT c.by_bucket AND NOT c.whole), '[]'))
                   ELSE '{}' END
      INTO sums;
    RETURN queen.log_window_json(w) || sums;
END
$$;
COMMENT ON FUNCTION queen.log_analytics_retention(uuid, text, text, text, text, text, text) IS
    'What retention deleted per bucket and rule: the answer of GET /api/v1/analytics/retention; group_by queue adds a row per queue. Messages of partitions that are gone are not counted. Raises 22023 for a bad range or group_by';

CREATE FUNCTION queen.log_analytics_messages(tenant uuid, of_queue text, of_namespace text,
                                             of_task text, since text, until text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w CONSTANT queen.log_window := queen.log_window(since, until, '1 hour');
BEGIN
    RETURN queen.log_window_json(w) || (
        WITH sums AS MATERIALIZED (
            SELECT r.bucket, r.queue, GROUPING(r.bucket) = 0 AS by_bucket,
                   GROUPING(r.queue) = 0 AS by_queue, sum(r.pushes) AS pushes,
                   sum(r.pushed) AS pushed, sum(r.pops) AS pops, sum(r.popped) AS popped,
                   sum(r.completed) AS completed, sum(r.failed) AS failed,
                   sum(r.letters) AS letters,
                   queen.log_average_lag(sum(r.lag), sum(r.popped)) AS avg_lag,
                   coalesce(max(r.max_lag), 0) AS max_lag
              FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS r
             GROUP BY GROUPING SETS ((r.bucket), (r.queue), ())
        )
        SELECT jsonb_build_object(
                   'pointCount', (SELECT count(*) FROM sums AS s WHERE s.by_bucket),
                   'timeSeries', coalesce((
                       SELECT jsonb_agg(jsonb_build_object(
                           'timestamp', queen.wire_bucket(s.bucket), 'pushMessages', s.pushed,
                           'popMessages', s.popped, 'ackMessages', s.completed + s.failed,
                           'pushRequests', s.pushes, 'popRequests', s.pops,
                           'ackRequests', s.completed + s.failed,
                           'jobsDone', s.pushes + s.pops + s.completed + s.failed,
                           'pushPerSecond', queen.log_rate(s.pushed, w),
                           'popPerSecond', queen.log_rate(s.popped, w),
                           'ackPerSecond', queen.log_rate(s.completed + s.failed, w),
                           'avgEventLoopLagMs', 0, 'maxEventLoopLagMs', 0, 'avgFreeSlots', 0,
                           'minFreeSlots', 0, 'dbConnections', 0, 'avgJobQueueSize', 0,
                           'maxJobQueueSize', 0, 'backoffSize', 0, 'avgLagMs', s.avg_lag,
                           'maxLagMs', s.max_lag, 'lagCount', s.popped, 'dbErrors', 0,
                           'ackSuccess', s.completed, 'ackFailed', s.failed,
                           'dlqCount', s.letters) ORDER BY s.bucket)
                         FROM sums AS s WHERE s.by_bucket), '[]'),
                   'queues', coalesce((
                       SELECT jsonb_agg(jsonb_build_object(
                           'queueName', s.queue, 'popCount', s.pops, 'avgLagMs', s.avg_lag,
                           'maxLagMs', s.max_lag) ORDER BY s.queue COLLATE "C")
                         FROM sums AS s WHERE s.by_queue), '[]'),
                   'summary', (
                       SELECT jsonb_build_object(
                           'totalPushMessages', coalesce(s.pushed, 0),
                           'totalPopMessages', coalesce(s.popped, 0),
                           'totalAckMessages', coalesce(s.completed + s.failed, 0),
                           'totalPushRequests', coalesce(s.pushes, 0),
                           'totalPopRequests', coalesce(s.pops, 0),
                           'totalAckRequests', coalesce(s.completed + s.failed, 0),
                           'totalDbErrors', 0, 'totalAckFailed', coalesce(s.failed, 0),
                           'totalDlqMessages', coalesce(s.letters, 0), 'avgLagMs', s.avg_lag,
                           'maxLagMs', s.max_lag,
                           'pendingMessages',
                           (SELECT t.pending
                              FROM queen.log_totals(tenant, of_queue, of_namespace, of_task) AS t))
                         FROM sums AS s WHERE NOT s.by_bucket AND NOT s.by_queue)));
END
$$;
COMMENT ON FUNCTION queen.log_analytics_messages(uuid, text, text, text, text, text) IS
    'Messages per bucket and in sum: the answer of GET /api/v1/analytics/worker-metrics without its workers. Raises 22023 for a bad range';

CREATE FUNCTION queen.log_analytics_workload(tenant uuid, of_queue text, of_namespace text,
                                             of_task text, since text, until text, group_by text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w CONSTANT queen.log_window := queen.log_window(since, until, '1 hour');
BEGIN
    IF group_by NOT IN ('namespace', 'task', 'queue') THEN
        RAISE EXCEPTION 'bad groupBy' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN queen.log_window_json(w) || (
        WITH gauges AS MATERIALIZED (
            SELECT CASE group_by WHEN 'namespace' THEN q.namespace WHEN 'task' THEN q.task
                                 ELSE q.name END::text AS name,
                   count(*) AS queues, sum(t.partitions) AS partitions, sum(t.pending) AS pending,
                   sum(t.processing) AS processing, sum(t.dead_letters) AS dead_letters
              FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
             CROSS JOIN LATERAL queen.queue_counters(q.id) AS t
             GROUP BY 1
        ), sums AS MATERIALIZED (
            SELECT s.name, s.bucket, GROUPING(s.bucket) = 0 AS by_bucket, sum(s.pushed) AS pushed,
                   sum(s.popped) AS popped, sum(s.completed) AS completed, sum(s.letters) AS letters
              FROM (SELECT r.bucket,
                           CASE group_by WHEN 'namespace' THEN r.namespace WHEN 'task' THEN r.task
                                         ELSE r.queue END AS name,
                           r.pushed, r.popped, r.completed, r.letters
                      FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS r) AS s
             GROUP BY GROUPING SETS ((s.name, s.bucket), (s.name))
        )
        SELECT jsonb_build_object('groupBy', group_by, 'groups', coalesce(jsonb_agg(
                   jsonb_build_object(
                       'name', g.name,
                       'totals', jsonb_build_object(
                           'pushMessages', coalesce(t.pushed, 0), 'popMessages', coalesce(t.popped, 0),
                           'ackMessages', coalesce(t.completed, 0), 'dlqMessages', coalesce(t.letters, 0)),
                       'series', coalesce((
                           SELECT jsonb_agg(jsonb_build_object(
                                      'bucket', queen.wire_bucket(s.bucket), 'pushMessages', s.pushed,
                                      'popMessages', s.popped, 'ackMessages', s.completed)
                                      ORDER BY s.bucket)
                             FROM sums AS s WHERE s.by_bucket AND s.name = g.name), '[]'),
                       'gauges', jsonb_build_object(
                           'queues', g.queues, 'partitions', g.partitions, 'pending', g.pending,
                           'processing', g.processing, 'deadLetter', g.dead_letters))
                   ORDER BY g.name COLLATE "C"), '[]'))
          FROM gauges AS g
          LEFT JOIN sums AS t ON t.name = g.name AND NOT t.by_bucket);
END
$$;
COMMENT ON FUNCTION queen.log_analytics_workload(uuid, text, text, text, text, text, text) IS
    'Messages and backlog per namespace, task or queue (group_by): the answer of GET /api/v1/analytics/workload. Raises 22023 for a bad range or group_by';

-- Names of things differ from error to error; what is left is the shape.
CREATE FUNCTION queen.log_error_shape(error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.left(pg_catalog.regexp_replace(pg_catalog.regexp_replace(
               pg_catalog.regexp_replace(error,
                   '[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}', '<uuid>', 'g'),
               '"[^"]*"|''[^'']*''', '<text>', 'g'),
               '\d+(\.\d+)?', '<n>', 'g'), 300);
END;
COMMENT ON FUNCTION queen.log_error_shape(text) IS
    'An error text with UUIDs, quoted texts and numbers replaced by their kinds, at most 300 characters';

CREATE FUNCTION queen.log_analytics_dlq(tenant uuid, of_queue text, since text, until text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w CONSTANT queen.log_window := queen.log_window(since, until, '7 days');
BEGIN
    RETURN queen.log_window_json(w) || (
        SELECT jsonb_build_object(
                   'queue', of_queue, 'total', coalesce(sum(s.n), 0),
                   'signatures', coalesce(jsonb_agg(jsonb_build_object(
                       'signature', s.shape, 'count', s.n, 'example', s.example,
                       'firstSeen', queen.wire_time(s.first), 'lastSeen', queen.wire_time(s.last))
                       ORDER BY s.n DESC, s.shape) FILTER (WHERE s.rank <= 100), '[]'))
          FROM (SELECT queen.log_error_shape(d.error) AS shape, count(*) AS n,
                       min(d.error) AS example, min(d.failed_at) AS first, max(d.failed_at) AS last,
                       row_number() OVER (ORDER BY count(*) DESC) AS rank
                  FROM queen.log_matching(tenant, of_queue, NULL, NULL) AS q
                  JOIN queen.log_partitions AS p ON p.queue_id = q.id
                  JOIN queen.log_dlq AS d
                    ON d.partition_id = p.id AND d.failed_at > w.since AND d.failed_at <= w.until
                 GROUP BY 1) AS s);
END
$$;
COMMENT ON FUNCTION queen.log_analytics_dlq(uuid, text, text, text) IS
    'Dead letters of a queue by the shape of their error, the 100 most frequent ones: the answer of GET /api/v1/analytics/dlq-signatures. Raises 22023 for a bad range';

CREATE FUNCTION queen.log_analytics_liveness(tenant uuid, of_queue text, of_namespace text,
                                             of_task text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object('queues', coalesce(jsonb_agg(jsonb_build_object(
               'queueName', q.name, 'partitions', p.partitions, 'activePartitions', p.active,
               'idlePartitions', p.partitions - p.active) ORDER BY q.name COLLATE "C"), '[]'))
      FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
     CROSS JOIN LATERAL (
            SELECT count(*) AS partitions,
                   count(*) FILTER (WHERE r.last_write_at > clock_timestamp() - interval '1 day'
                                      AND r.last_offset >= 0) AS active
              FROM queen.log_partitions AS r
             WHERE r.queue_id = q.id) AS p;
$$;
COMMENT ON FUNCTION queen.log_analytics_liveness(uuid, text, text, text) IS
    'Partitions per queue, and how many of them were written in the last day: the answer of GET /api/v1/analytics/partition-liveness';

CREATE FUNCTION queen.log_analytics_postgres() RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
    SELECT jsonb_build_object(
        'database', (
            SELECT jsonb_build_object(
                       'name', d.datname, 'sizeBytes', pg_database_size(d.datid),
                       'connections', d.numbackends, 'commits', d.xact_commit,
                       'rollbacks', d.xact_rollback, 'blocksRead', d.blks_read,
                       'blocksHit', d.blks_hit,
                       'cacheHitRatio', round(d.blks_hit::numeric
                                              / nullif(d.blks_hit + d.blks_read, 0), 4),
                       'deadlocks', d.deadlocks, 'tempBytes', d.temp_bytes,
                       'statsReset', queen.wire_time(d.stats_reset))
              FROM pg_stat_database AS d WHERE d.datname = current_database()),
        'tables', (
            SELECT jsonb_agg(jsonb_build_object(
                       'name', t.relname, 'totalBytes', pg_total_relation_size(t.relid),
                       'liveRows', t.n_live_tup, 'deadRows', t.n_dead_tup,
                       'rowsInserted', t.n_tup_ins, 'rowsUpdated', t.n_tup_upd,
                       'rowsHotUpdated', t.n_tup_hot_upd, 'rowsDeleted', t.n_tup_del,
                       'lastAutovacuum', queen.wire_time(t.last_autovacuum)) ORDER BY t.relname)
              FROM pg_stat_all_tables AS t WHERE t.schemaname = 'queen'));
$$;
COMMENT ON FUNCTION queen.log_analytics_postgres() IS
    'The database and its tables as PostgreSQL counts them: the answer of GET /api/v1/analytics/postgres-stats';
