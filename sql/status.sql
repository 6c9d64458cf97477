-- What there is now and what the last hours brought: the status routes.

-- The front end adds the state of its own threads, which no database knows.
CREATE FUNCTION queen.log_status(tenant uuid, of_queue text, of_namespace text, of_task text,
                                 since text, until text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w       CONSTANT queen.log_window := queen.log_window(since, until, '1 hour');
    now     record;
    past    record;
    series  jsonb;
    queues  jsonb;
    letters record;
BEGIN
    SELECT t.* INTO now FROM queen.log_totals(tenant, of_queue, of_namespace, of_task) AS t;

    WITH sums AS MATERIALIZED (
        SELECT r.bucket, sum(r.pushed) AS ingested, sum(r.completed) AS processed,
               sum(r.popped) AS popped, sum(r.pushes) AS pushes, sum(r.pops) AS pops,
               sum(r.failed) AS failed, sum(r.charged) AS charged, sum(r.letters) AS letters,
               queen.log_average_lag(sum(r.lag), sum(r.popped)) AS avg_lag,
               max(r.max_lag) AS max_lag
          FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS r
         GROUP BY r.bucket
    )
    SELECT jsonb_agg(jsonb_build_object(
               'timestamp', queen.wire_bucket(b.bucket),
               'ingested', coalesce(s.ingested, 0), 'processed', coalesce(s.processed, 0),
               'popMessages', coalesce(s.popped, 0),
               'ingestedPerSecond', coalesce(queen.log_rate(s.ingested, w), 0),
               'processedPerSecond', coalesce(queen.log_rate(s.processed, w), 0),
               'popPerSecond', coalesce(queen.log_rate(s.popped, w), 0),
               'avgLagMs', coalesce(s.avg_lag, 0), 'maxLagMs', coalesce(s.max_lag, 0),
               'avgEventLoopLagMs', 0, 'maxEventLoopLagMs', 0, 'minFreeSlots', 0, 'dbErrors', 0,
               'ackFailed', coalesce(s.charged, 0), 'dlqCount', coalesce(s.letters, 0),
               'queenCpuUserPct', 0, 'queenCpuSysPct', 0, 'queenRssMb', 0, 'dbPoolActive', 0,
               'dbPoolIdle', 0, 'dbPoolSize', 0)
               ORDER BY b.bucket) AS series,
           count(*) AS points, coalesce(sum(s.ingested), 0) AS ingested,
           coalesce(sum(s.processed), 0) AS processed, coalesce(sum(s.popped), 0) AS popped,
           coalesce(sum(s.pushes), 0) AS pushes, coalesce(sum(s.pops), 0) AS pops,
           coalesce(sum(s.failed), 0) AS failed, coalesce(sum(s.charged), 0) AS charged,
           coalesce(sum(s.letters), 0) AS letters
      INTO past
      FROM queen.log_buckets(w) AS b (bucket)
      LEFT JOIN sums AS s ON s.bucket = b.bucket;

    SELECT jsonb_agg(jsonb_build_object(
               'id', q.id, 'name', q.name, 'namespace', q.namespace, 'task', q.task,
               'partitions', t.partitions, 'totalConsumed', t.consumed)
               ORDER BY q.name COLLATE "C")
      INTO queues
      FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
     CROSS JOIN LATERAL (
            SELECT count(*) AS partitions, coalesce(sum(c.consumed), 0) AS consumed
              FROM queen.log_partitions AS p
             CROSS JOIN LATERAL (SELECT sum(k.total_consumed) AS consumed
                                   FROM queen.log_consumers AS k
                                  WHERE k.partition_id = p.id) AS c
             WHERE p.queue_id = q.id) AS t;

    WITH filed AS MATERIALIZED (
        SELECT d.partition_id, d.error
          FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
          JOIN queen.log_partitions AS p ON p.queue_id = q.id
          JOIN queen.log_dlq AS d ON d.partition_id = p.id
    )
    SELECT (SELECT count(DISTINCT f.partition_id) FROM filed AS f) AS partitions,
           (SELECT jsonb_agg(jsonb_build_object('error', e.error, 'count', e.n)
                             ORDER BY e.n DESC, e.error)
              FROM (SELECT f.error, count(*) AS n FROM filed AS f
                     GROUP BY f.error ORDER BY 2 DESC, 1 LIMIT 10) AS e) AS errors
      INTO letters;

    RETURN queen.log_window_json(w) || jsonb_build_object(
        'pointCount', past.points, 'throughput', past.series, 'queues', coalesce(queues, '[]'),
        'messages', jsonb_build_object(
            'total', now.total, 'pending', now.pending, 'processing', now.processing,
            'completed', now.completed, 'failed', past.charged, 'deadLetter', now.dead_letters,
            'requests', jsonb_build_object('push', past.pushes, 'pop', past.pops,
                                           'ack', past.processed + past.failed),
            'batchEfficiency', jsonb_build_object(
                'push', coalesce(round(past.ingested / nullif(past.pushes, 0), 2), 0),
                'pop', coalesce(round(past.popped / nullif(past.pops, 0), 2), 0),
                'ack', CASE WHEN past.processed + past.failed > 0 THEN 1 ELSE 0 END)),
        'leases', jsonb_build_object(
            'active', now.leases, 'partitionsWithLeases', now.leased_partitions,
            'totalBatchSize', now.leased, 'totalAcked', now.consumed),
        'deadLetterQueue', jsonb_build_object(
            'totalMessages', now.dead_letters, 'affectedPartitions', letters.partitions,
            'topErrors', coalesce(letters.errors, '[]')),
        'errors', jsonb_build_object('dbErrors', 0, 'ackFailed', past.charged,
                                     'dlqMessages', past.letters));
END
$$;
COMMENT ON FUNCTION queen.log_status(uuid, text, text, text, text, text) IS
    'Throughput, queues, messages, leases and dead letters of a tenant: the answer of GET /api/v1/status without its workers and its age. Raises 22023 for a bad range';

CREATE FUNCTION queen.log_status_queues(tenant uuid, of_queue text, of_namespace text,
                                        of_task text, max_rows int, skip int) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object(
               'queues', coalesce(jsonb_agg(jsonb_build_object(
                   'id', q.id, 'name', q.name, 'namespace', q.namespace, 'task', q.task,
                   'createdAt', queen.wire_time(q.created_at), 'partitions', t.partitions,
                   'messages', jsonb_build_object(
                       'total', t.total, 'pending', t.pending, 'processing', t.processing,
                       'completed', t.completed, 'deadLetter', t.dead_letters))
                   ORDER BY q.name COLLATE "C"), '[]'),
               'pagination', jsonb_build_object('limit', max_rows, 'offset', skip))
      FROM (SELECT m.* FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS m
             ORDER BY m.name COLLATE "C" LIMIT max_rows OFFSET skip) AS q
     CROSS JOIN LATERAL queen.queue_counters(q.id) AS t;
$$;
COMMENT ON FUNCTION queen.log_status_queues(uuid, text, text, text, int, int) IS
    'Queues of a tenant with their counters, by name: the answer of GET /api/v1/status/queues';

CREATE FUNCTION queen.log_status_queue(tenant uuid, queue text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object(
               'queue', jsonb_build_object(
                   'id', q.id, 'name', q.name, 'namespace', q.namespace, 'task', q.task,
                   'priority', q.priority, 'createdAt', queen.wire_time(q.created_at),
                   'config', jsonb_build_object(
                       'leaseTime', q.lease_time, 'retryLimit', q.retry_limit,
                       'retryDelay', q.retry_delay, 'ttl', q.ttl,
                       'maxQueueSize', q.max_queue_size,
                       'deadLetterQueue', q.dead_letter_queue)),
               'partitions', coalesce(c.partitions, '[]'),
               'totals', c.totals || jsonb_build_object('messages', c.totals))
      FROM queen.queues AS q
     CROSS JOIN LATERAL (
            SELECT jsonb_agg(jsonb_build_object(
                       'id', p.id, 'name', p.name, 'createdAt', queen.wire_time(p.created_at),
                       'messages', n.counters, 'stats', n.counters,
                       'cursor', jsonb_build_object('totalConsumed', k.consumed,
                                                    'batchesConsumed', NULL),
                       'lastActivity', queen.wire_time(
                           greatest(CASE WHEN p.total > 0 THEN p.last_created_at END, k.leased_at,
                                    p.created_at)),
                       'oldestMessage', queen.wire_time(
                           (SELECT s.created_at
                              FROM queen.log_segments AS s
                             WHERE s.partition_id = p.id AND s.base_offset >= p.log_start
                             ORDER BY s.base_offset LIMIT 1)),
                       'newestMessage', CASE WHEN p.total > 0
                                             THEN queen.wire_time(p.last_created_at) END)
                       ORDER BY p.name COLLATE "C") AS partitions,
                   jsonb_build_object(
                       'total', coalesce(sum(p.total), 0), 'pending', coalesce(sum(p.pending), 0),
                       'processing', coalesce(sum(p.processing), 0),
                       'completed', coalesce(sum(p.completed), 0),
                       'deadLetter', coalesce(sum(p.dead_letters), 0)) AS totals
              FROM queen.partition_counters(q.id) AS p
             CROSS JOIN LATERAL (
                    SELECT jsonb_build_object(
                               'total', p.total, 'pending', p.pending,
                               'processing', p.processing, 'completed', p.completed,
                               'deadLetter', p.dead_letters) AS counters) AS n
             CROSS JOIN LATERAL (
                    SELECT coalesce(sum(x.total_consumed), 0) AS consumed,
                           max(x.lease_acquired_at) AS leased_at
                      FROM queen.log_consumers AS x
                     WHERE x.partition_id = p.id) AS k) AS c
     WHERE q.tenant_id = tenant AND q.name = queue AND q.deleted_at IS NULL;
$$;
COMMENT ON FUNCTION queen.log_status_queue(uuid, text) IS
    'One queue with its partitions and their counters: the answer of GET /api/v1/status/queues/:queue. NULL when there is none';

CREATE FUNCTION queen.log_status_analytics(tenant uuid, of_queue text, of_namespace text,
                                           of_task text, since text, until text, step text)
RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    w queen.log_window := queen.log_window(since, until, '1 day');
BEGIN
    w.bucket := CASE step WHEN 'minute' THEN interval '1 minute' WHEN 'hour' THEN interval '1 hour'
                          WHEN 'day' THEN interval '1 day' END;
    IF w.bucket IS NULL OR (w.until - w.since) / 10000 > w.bucket THEN
        RAISE EXCEPTION 'interval must be minute, hour or day, and fit 10,000 times into the range'
            USING ERRCODE = 'invalid_parameter_value', COLUMN = 'interval';
    END IF;
    RETURN (
        SELECT jsonb_build_object(
                   'dataPoints', jsonb_agg(jsonb_build_object(
                       'timestamp', queen.wire_bucket(b.bucket), 'messages', coalesce(s.n, 0))
                       ORDER BY b.bucket),
                   'interval', step, 'from', queen.wire_time(w.since),
                   'to', queen.wire_time(w.until))
          FROM queen.log_buckets(w) AS b (bucket)
          LEFT JOIN (SELECT r.bucket, sum(r.pushed) AS n
                       FROM queen.log_history(tenant, of_queue, of_namespace, of_task, w) AS r
                      GROUP BY r.bucket) AS s ON s.bucket = b.bucket);
END
$$;
COMMENT ON FUNCTION queen.log_status_analytics(uuid, text, text, text, text, text, text) IS
    'Messages pushed per minute, hour or day: the answer of GET /api/v1/status/analytics. Raises 22023 for a bad range or interval';
