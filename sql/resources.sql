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
            SELECT coalesce(pg_catalog.min(k.committed)
                                FILTER (WHERE k.consumer_group <> '__QUEUE_MODE__'),
                            pg_catalog.min(k.committed), -1) AS worst,
                   coalesce(pg_catalog.sum(k.batch_end - k.committed)
                                FILTER (WHERE k.lease_expires_at > pg_catalog.clock_timestamp()),
                            0)::bigint AS leased
              FROM queen.log_consumers AS k
             WHERE k.partition_id = p.id) AS c
     CROSS JOIN LATERAL (
            SELECT p.last_offset - p.log_start + 1 AS total,
                   greatest(p.last_offset - greatest(c.worst, p.log_start - 1), 0) AS pending) AS n
     CROSS JOIN LATERAL (
            SELECT pg_catalog.count(*) AS letters
              FROM queen.log_dlq AS l
             WHERE l.partition_id = p.id) AS d
     WHERE p.queue_id = partition_counters.queue_id;
END;
COMMENT ON FUNCTION queen.partition_counters(uuid) IS
    'Per partition of a queue, in messages: total is what retention left; pending is what the slowest named group has not passed, or queue mode when there is no named group, or all; processing is under live leases; completed is the rest without the dead letters. bytes and segments as stored';

CREATE FUNCTION queen.log_queues(tenant uuid) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
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
     CROSS JOIN LATERAL (
            SELECT count(*) AS partitions, coalesce(sum(p.bytes), 0) AS bytes,
                   coalesce(sum(p.segments), 0) AS segments, coalesce(sum(p.total), 0) AS total,
                   coalesce(sum(p.pending), 0) AS pending,
                   coalesce(sum(p.processing), 0) AS processing
              FROM queen.partition_counters(q.id) AS p) AS c
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL;
$$;
COMMENT ON FUNCTION queen.log_queues(uuid) IS
    'Every queue of a tenant with its counters: the answer of GET /resources/queues. Bytes are compressed, counters are messages';

CREATE FUNCTION queen.log_queue(tenant uuid, queue text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
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
