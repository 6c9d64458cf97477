-- What a tenant has: queues and their counters.
--
-- Counters come from offsets, never from log_segments: a listing costs a few index probes per
-- partition however many messages there are.

CREATE FUNCTION queen.wire_time(t timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
END;
COMMENT ON FUNCTION queen.wire_time(timestamptz) IS
    'A time as listings show it: ISO 8601, UTC, milliseconds';

-- For a subscribed group without a cursor, the one that it will get. Only a partition that is older
-- than the subscription and was written after it has to be searched for where the group starts.
CREATE FUNCTION queen.partition_places(p queen.log_partitions)
RETURNS TABLE (consumer_group text, passed bigint, lag bigint, leased bigint, consumed bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.consumer_group, n.passed, p.last_offset - n.passed,
           CASE WHEN c.lease_expires_at > pg_catalog.clock_timestamp()
                THEN c.batch_end - c.committed END,
           c.total_consumed
      FROM queen.log_consumers AS c
     CROSS JOIN LATERAL (SELECT greatest(c.committed, p.log_start - 1) AS passed) AS n
     WHERE c.partition_id = p.id
    UNION ALL
    SELECT m.consumer_group, n.passed, p.last_offset - n.passed, NULL, 0
      FROM queen.consumer_groups_metadata AS m
     CROSS JOIN LATERAL (
            SELECT CASE WHEN s.start <= p.created_at THEN p.log_start - 1
                        WHEN s.start > p.last_created_at THEN p.last_offset
                        ELSE queen.log_offset_before(p.id, p.log_start, p.last_offset,
                                                     s.start) END AS passed
              FROM (SELECT queen.log_subscription_start(m, p.created_at) AS start) AS s) AS n
     WHERE m.queue_id = p.queue_id AND m.partition_name = ''
       AND NOT EXISTS (SELECT
                         FROM queen.log_consumers AS c
                        WHERE c.partition_id = p.id AND c.consumer_group = m.consumer_group);
END;
COMMENT ON FUNCTION queen.partition_places(queen.log_partitions) IS
    'Where each consumer group stands in a partition: passed is the last offset that it will not receive any more, lag the messages behind it, leased the messages under a live lease, NULL when there is none. A group that subscribed to the queue has a place in partitions that it has not met';

CREATE FUNCTION queen.partition_counters(queue_id uuid)
RETURNS TABLE (id uuid, name text, created_at timestamptz, log_start bigint,
               last_created_at timestamptz, segments bigint, bytes bigint, total bigint,
               pending bigint, processing bigint, completed bigint, dead_letters bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.id, p.name, p.created_at, p.log_start, p.last_created_at, p.segments, p.bytes,
           n.total, n.pending, least(c.leased, n.pending),
           greatest(n.total - n.pending - d.letters, 0), d.letters
      FROM queen.log_partitions AS p
     CROSS JOIN LATERAL (
            SELECT coalesce(pg_catalog.min(k.passed)
                                FILTER (WHERE k.consumer_group <> '__QUEUE_MODE__'),
                            pg_catalog.min(k.passed), p.log_start - 1) AS passed,
                   coalesce(pg_catalog.sum(k.leased), 0)::bigint AS leased
              FROM queen.partition_places(p) AS k) AS c
     CROSS JOIN LATERAL (
            SELECT p.last_offset - p.log_start + 1 AS total,
                   greatest(p.last_offset - c.passed, 0) AS pending) AS n
     CROSS JOIN LATERAL (
            SELECT pg_catalog.count(*) AS letters
              FROM queen.log_dlq AS l
             WHERE l.partition_id = p.id) AS d
     WHERE p.queue_id = partition_counters.queue_id;
END;
COMMENT ON FUNCTION queen.partition_counters(uuid) IS
    'Per partition of a queue, in messages: total is what retention left; pending is what the slowest named group has not passed or, having subscribed, is yet to get, or queue mode when there is no named group, or all; processing is under live leases; completed is the rest without the dead letters. bytes and segments as stored';

CREATE FUNCTION queen.queue_counters(queue_id uuid)
RETURNS TABLE (partitions bigint, segments numeric, bytes numeric, total numeric, pending numeric,
               processing numeric, completed numeric, dead_letters numeric)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT pg_catalog.count(*), coalesce(pg_catalog.sum(p.segments), 0),
           coalesce(pg_catalog.sum(p.bytes), 0), coalesce(pg_catalog.sum(p.total), 0),
           coalesce(pg_catalog.sum(p.pending), 0), coalesce(pg_catalog.sum(p.processing), 0),
           coalesce(pg_catalog.sum(p.completed), 0), coalesce(pg_catalog.sum(p.dead_letters), 0)
      FROM queen.partition_counters(queue_counters.queue_id) AS p;
END;
COMMENT ON FUNCTION queen.queue_counters(uuid) IS
    'Sums of partition_counters over a queue';

CREATE FUNCTION queen.log_queues(tenant uuid) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object('queues', coalesce(jsonb_agg(jsonb_build_object(
               'id', q.id, 'name', q.name, 'namespace', q.namespace, 'task', q.task,
               'createdAt', queen.wire_time(q.created_at), 'partitions', c.partitions,
               'retainedBytes', c.bytes,
               'segments', jsonb_build_object('segments', c.segments, 'messages', c.total),
               'messages', jsonb_build_object('total', c.total, 'pending', c.pending,
                                              'processing', c.processing))
               ORDER BY q.name COLLATE "C"), '[]'))
      FROM queen.queues AS q
     CROSS JOIN LATERAL queen.queue_counters(q.id) AS c
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL;
$$;
COMMENT ON FUNCTION queen.log_queues(uuid) IS
    'Every queue of a tenant with its counters: the answer of GET /resources/queues. Bytes are compressed, counters are messages';

CREATE FUNCTION queen.log_queue(tenant uuid, queue text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object(
               'id', q.id, 'name', q.name, 'namespace', q.namespace, 'task', q.task,
               'createdAt', queen.wire_time(q.created_at), 'options', queen.queue_options(q),
               'partitions', c.partitions, 'totals', c.totals, 'retainedBytes', c.bytes,
               'segments', c.segments)
      FROM queen.queues AS q
     CROSS JOIN LATERAL (
            SELECT coalesce(sum(p.bytes), 0) AS bytes, coalesce(sum(p.segments), 0) AS segments,
                   jsonb_build_object(
                       'total', coalesce(sum(p.total), 0),
                       'pending', coalesce(sum(p.pending), 0),
                       'processing', coalesce(sum(p.processing), 0),
                       'completed', coalesce(sum(p.completed), 0), 'failed', NULL,
                       'deadLetter', coalesce(sum(p.dead_letters), 0)) AS totals,
                   coalesce(jsonb_agg(jsonb_build_object(
                       'id', p.id, 'name', p.name, 'createdAt', queen.wire_time(p.created_at),
                       'stats', jsonb_build_object(
                           'total', p.total, 'pending', p.pending, 'processing', p.processing,
                           'completed', p.completed, 'failed', NULL,
                           'deadLetter', p.dead_letters),
                       'oldestMessage', queen.wire_time(
                           (SELECT s.created_at
                              FROM queen.log_segments AS s
                             WHERE s.partition_id = p.id AND s.base_offset >= p.log_start
                             ORDER BY s.base_offset LIMIT 1)),
                       'newestMessage', CASE WHEN p.total > 0
                                             THEN queen.wire_time(p.last_created_at) END)
                       ORDER BY p.name COLLATE "C"), '[]') AS partitions
              FROM queen.partition_counters(q.id) AS p) AS c
     WHERE q.tenant_id = tenant AND q.name = queue AND q.deleted_at IS NULL;
$$;
COMMENT ON FUNCTION queen.log_queue(uuid, text) IS
    'One queue with its options, its partitions and their counters: the answer of GET /resources/queues/:queue. NULL when there is none';

-- With a group: where that group stands, or will start. Without: the rule of partition_counters.
CREATE FUNCTION queen.log_queue_depth(tenant uuid, of_queue text, of_group text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    target uuid := (SELECT q.id FROM queen.queues AS q
                     WHERE q.tenant_id = tenant AND q.name = of_queue AND q.deleted_at IS NULL);
BEGIN
    IF target IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT jsonb_build_object(
                   'queue', of_queue, 'group', of_group, 'pending', coalesce(sum(d.pending), 0),
                   'processing', coalesce(sum(d.leased), 0),
                   'ready', coalesce(sum(d.pending - d.leased), 0),
                   'partitionsPending', count(*) FILTER (WHERE d.pending > 0),
                   'partitionsReady', count(*) FILTER (WHERE d.pending > d.leased),
                   'conflation', false, 'effectivePending', coalesce(sum(d.pending), 0),
                   'effectiveReady', coalesce(sum(d.pending - d.leased), 0),
                   'partitions', coalesce(jsonb_agg(jsonb_build_object(
                       'partition', d.name, 'pending', d.pending, 'processing', d.leased,
                       'ready', d.pending - d.leased) ORDER BY d.name COLLATE "C"), '[]'))
          FROM (SELECT p.name, p.pending, p.processing AS leased
                  FROM queen.partition_counters(target) AS p
                 WHERE of_group IS NULL
                UNION ALL
                SELECT p.name, n.pending, least(coalesce(s.leased, 0), n.pending)
                  FROM queen.log_partitions AS p
                  LEFT JOIN LATERAL queen.partition_places(p) AS s ON s.consumer_group = of_group
                 CROSS JOIN LATERAL (
                        SELECT CASE WHEN s.consumer_group IS NULL
                                    THEN p.last_offset - p.log_start + 1
                                    ELSE greatest(s.lag, 0) END AS pending) AS n
                 WHERE of_group IS NOT NULL AND p.queue_id = target) AS d);
END
$$;
COMMENT ON FUNCTION queen.log_queue_depth(uuid, text, text) IS
    'Messages that a group has yet to complete, per partition and in sum: the answer of GET /resources/queues/:queue/depth. A group that is unknown has all of them before it; NULL for of_group: as log_queue counts. NULL when there is no such queue';

CREATE FUNCTION queen.log_labels(tenant uuid, label text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object(label || 's', coalesce(jsonb_agg(jsonb_build_object(
               label, l.name, 'queues', l.queues, 'partitions', l.partitions,
               'messages', jsonb_build_object('total', l.total, 'pending', l.pending))
               ORDER BY l.name COLLATE "C"), '[]'))
      FROM (SELECT CASE label WHEN 'namespace' THEN q.namespace ELSE q.task END AS name,
                   count(*) AS queues, sum(c.partitions) AS partitions, sum(c.total) AS total,
                   sum(c.pending) AS pending
              FROM queen.queues AS q
             CROSS JOIN LATERAL queen.queue_counters(q.id) AS c
             WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
             GROUP BY 1) AS l;
$$;
COMMENT ON FUNCTION queen.log_labels(uuid, text) IS
    'Namespaces or tasks (label namespace or task) of a tenant''s queues with their counters: the answer of GET /resources/namespaces and /resources/tasks. Queues without one are under the empty name';

-- Rates are those of the last two minutes of the history.
CREATE FUNCTION queen.log_overview(tenant uuid) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    WITH mine AS MATERIALIZED (
        SELECT q.* FROM queen.queues AS q WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
    ), held AS MATERIALIZED (
        SELECT p.*,
               CASE WHEN p.pending > 0
                    THEN extract(epoch FROM clock_timestamp()
                                 - (SELECT s.created_at
                                      FROM queen.log_segments AS s
                                     WHERE s.partition_id = p.id
                                       AND s.base_offset <= p.log_start + p.total - p.pending
                                     ORDER BY s.base_offset DESC LIMIT 1)) END AS age
          FROM mine AS q
         CROSS JOIN LATERAL queen.partition_counters(q.id) AS p
    ), recent AS MATERIALIZED (
        SELECT sum(h.push_messages) AS pushed, sum(h.acks_completed) AS completed,
               extract(epoch FROM max(h.ended_at) - min(h.started_at)) AS seconds
          FROM mine AS q
          JOIN queen.queue_history AS h
            ON h.queue_id = q.id AND h.ended_at > statement_timestamp() - interval '2 minutes'
    )
    SELECT jsonb_build_object(
        'queues', (SELECT count(*) FROM mine), 'partitions', h.partitions,
        'namespaces', (SELECT count(DISTINCT q.namespace) FROM mine AS q WHERE q.namespace <> ''),
        'tasks', (SELECT count(DISTINCT q.task) FROM mine AS q WHERE q.task <> ''),
        'messages', jsonb_build_object(
            'total', h.total, 'pending', h.pending, 'processing', h.processing,
            'completed', h.completed, 'failed', 0, 'deadLetter', h.dead_letters),
        'lag', jsonb_build_object('time', h.ages, 'offset', h.lags),
        'throughput', jsonb_build_object(
            'ingestedPerSecond', coalesce(round(r.pushed / nullif(r.seconds, 0), 3), 0),
            'processedPerSecond', coalesce(round(r.completed / nullif(r.seconds, 0), 3), 0)),
        'timestamp', queen.wire_time(clock_timestamp()))
      FROM recent AS r
     CROSS JOIN (
            SELECT count(*) AS partitions, coalesce(sum(p.total), 0) AS total,
                   coalesce(sum(p.pending), 0) AS pending,
                   coalesce(sum(p.processing), 0) AS processing,
                   coalesce(sum(p.completed), 0) AS completed,
                   coalesce(sum(p.dead_letters), 0) AS dead_letters,
                   jsonb_build_object(
                       'avg', coalesce(round(avg(p.age), 3), 0),
                       'median', coalesce(round(percentile_cont(0.5) WITHIN GROUP (ORDER BY p.age)::numeric, 3), 0),
                       'min', coalesce(round(min(p.age), 3), 0),
                       'max', coalesce(round(max(p.age), 3), 0)) AS ages,
                   jsonb_build_object(
                       'avg', coalesce(round(avg(p.pending) FILTER (WHERE p.pending > 0), 1), 0),
                       'median', coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY p.pending)
                                              FILTER (WHERE p.pending > 0), 0),
                       'min', coalesce(min(p.pending) FILTER (WHERE p.pending > 0), 0),
                       'max', coalesce(max(p.pending), 0)) AS lags
              FROM held AS p) AS h;
$$;
COMMENT ON FUNCTION queen.log_overview(uuid) IS
    'What a tenant has in sum: the answer of GET /resources/overview without its age. Lag is over the partitions that have any: time is the age of the oldest pending message in seconds, offset the number of pending messages';
