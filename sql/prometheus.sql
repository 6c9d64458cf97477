-- Metrics of the queues for Prometheus. The front end puts its own process's in front.

CREATE FUNCTION queen.metric_label(tenant uuid, queue text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 'queue="' || pg_catalog.replace(pg_catalog.replace(queue, '\', '\\'), '"', '\"') || '"'
           || CASE WHEN tenant = '00000000-0000-0000-0000-000000000001' THEN ''
                   ELSE ',tenant="' || tenant || '"' END;
END;
COMMENT ON FUNCTION queen.metric_label(uuid, text) IS
    'Labels of a queue: its name, escaped, and its tenant unless that is the default one';

-- The time of the statement, because the clock's, which is volatile, is no condition for an index:
-- all of the history would be read.
CREATE FUNCTION queen.metric_queues()
RETURNS TABLE (name text, kind text, help text, labels text, value numeric)
LANGUAGE sql STABLE
SET jit = off
AS $$
    WITH latest AS MATERIALIZED (
        SELECT queen.metric_label(q.tenant_id, q.name::text) AS labels, h.*,
               extract(epoch FROM h.ended_at - h.started_at) / 60 AS minutes
          FROM queen.queues AS q
         CROSS JOIN LATERAL (
                SELECT r.* FROM queen.queue_history AS r
                 WHERE r.queue_id = q.id AND r.ended_at > statement_timestamp() - interval '5 minutes'
                 ORDER BY r.ended_at DESC LIMIT 1) AS h
         WHERE q.deleted_at IS NULL
    )
    SELECT m.name, 'gauge', m.help, l.labels || m.labels, m.value
      FROM latest AS l
     CROSS JOIN LATERAL (VALUES
            ('queen_queue_push_requests_per_minute', 'Segments stored per minute', '',
             round(l.pushes / l.minutes, 2)),
            ('queen_queue_push_messages_per_minute', 'Messages stored per minute', '',
             round(l.push_messages / l.minutes, 2)),
            ('queen_queue_pop_messages_per_minute', 'Messages delivered per minute', '',
             round(l.pop_messages / l.minutes, 2)),
            ('queen_queue_pop_empty_per_minute', 'Pops per minute that found nothing', '',
             round(l.empty_pops / l.minutes, 2)),
            ('queen_queue_ack_per_minute', 'Messages acknowledged per minute', ',result="success"',
             round(l.acks_completed / l.minutes, 2)),
            ('queen_queue_ack_per_minute', 'Messages acknowledged per minute', ',result="failed"',
             round((l.acks_failed + l.acks_retried + l.dead_letters + l.acks_dropped)
                   / l.minutes, 2)),
            ('queen_queue_pop_lag_milliseconds', 'Age of messages when they were delivered',
             ',stat="avg"', queen.log_average_lag(l.pop_lag, l.pop_messages)),
            ('queen_queue_pop_lag_milliseconds', 'Age of messages when they were delivered',
             ',stat="max"', l.max_pop_lag),
            ('queen_queue_parked_consumers', 'Pops that waited', '', l.parked),
            ('queen_queue_metrics_age_seconds', 'Age of the row of history that these are from', '',
             round(extract(epoch FROM clock_timestamp() - l.ended_at), 3)))
           AS m (name, help, labels, value)
     WHERE l.minutes > 0;
$$;
COMMENT ON FUNCTION queen.metric_queues() IS
    'What the last row of each queue''s history says, if it is younger than five minutes';

CREATE FUNCTION queen.metric_cluster()
RETURNS TABLE (name text, kind text, help text, labels text, value numeric)
LANGUAGE sql STABLE
SET jit = off
AS $$
    SELECT m.name, 'counter', m.help, 'scope="cluster"' || m.labels, m.value
      FROM (SELECT coalesce(sum(s.pushes), 0) AS pushes,
                   coalesce(sum(s.push_messages), 0) AS pushed,
                   coalesce(sum(s.duplicates), 0) AS duplicates,
                   coalesce(sum(s.pops), 0) AS pops, coalesce(sum(s.pop_messages), 0) AS popped,
                   coalesce(sum(s.acks_completed), 0) AS completed,
                   coalesce(sum(s.acks_failed + s.acks_retried + s.dead_letters
                                + s.acks_dropped), 0) AS failed,
                   coalesce(sum(s.dead_letters), 0) AS letters,
                   coalesce(sum(s.leases_expired), 0) AS expired
              FROM queen.stat_queues() AS s) AS c
     CROSS JOIN LATERAL (VALUES
            ('queen_cluster_push_requests_total', 'Segments stored', '', c.pushes),
            ('queen_cluster_push_messages_total', 'Messages stored', '', c.pushed),
            ('queen_cluster_duplicates_total', 'Messages refused as duplicates', '', c.duplicates),
            ('queen_cluster_pop_requests_total', 'Pops', '', c.pops),
            ('queen_cluster_pop_messages_total', 'Messages delivered', '', c.popped),
            ('queen_cluster_ack_requests_total', 'Messages acknowledged', '',
             c.completed + c.failed),
            ('queen_cluster_ack_messages_total', 'Messages acknowledged', '',
             c.completed + c.failed),
            ('queen_cluster_ack_total', 'Messages acknowledged, by outcome', ',result="success"',
             c.completed),
            ('queen_cluster_ack_total', 'Messages acknowledged, by outcome', ',result="failed"',
             c.failed),
            ('queen_cluster_dlq_total', 'Messages filed as dead letters', '', c.letters),
            ('queen_cluster_leases_expired_total', 'Leases that ran out', '', c.expired))
           AS m (name, help, labels, value)
     WHERE queen.stat_preloaded();
$$;
COMMENT ON FUNCTION queen.metric_cluster() IS
    'The counters of all queues in sum; none without preload';

CREATE FUNCTION queen.metric_dead_letters()
RETURNS TABLE (name text, kind text, help text, labels text, value numeric)
LANGUAGE sql STABLE
SET jit = off
AS $$
    WITH filed AS MATERIALIZED (
        SELECT queen.metric_label(q.tenant_id, q.name::text) AS labels, sum(d.n) AS n
          FROM (SELECT l.partition_id, count(*) AS n FROM queen.log_dlq AS l GROUP BY 1) AS d
          JOIN queen.log_partitions AS p ON p.id = d.partition_id
          JOIN queen.queues AS q ON q.id = p.queue_id AND q.deleted_at IS NULL
         GROUP BY q.id
    )
    SELECT 'queen_dlq_depth', 'gauge', 'Dead letters', 'scope="cluster"', coalesce(sum(f.n), 0)
      FROM filed AS f
    UNION ALL
    SELECT 'queen_dlq_depth_by_queue', 'gauge', 'Dead letters of a queue', f.labels, f.n
      FROM filed AS f;
$$;
COMMENT ON FUNCTION queen.metric_dead_letters() IS 'How many dead letters there are';

CREATE FUNCTION queen.log_metrics() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET jit = off
AS $$
    SELECT string_agg(format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n%4$s', f.name, f.help, f.kind,
                             f.samples), '' ORDER BY f.name)
      FROM (SELECT m.name, m.help, m.kind,
                   string_agg(format(E'%s{%s} %s\n', m.name, m.labels, m.value), ''
                              ORDER BY m.labels COLLATE "C") AS samples
              FROM (SELECT * FROM queen.metric_cluster()
                    UNION ALL SELECT * FROM queen.metric_queues()
                    UNION ALL SELECT * FROM queen.metric_dead_letters()) AS m
             WHERE m.value IS NOT NULL
             GROUP BY m.name, m.help, m.kind) AS f;
$$;
COMMENT ON FUNCTION queen.log_metrics() IS
    'The metrics of all queues, of all tenants, in the text format of Prometheus: the second half of GET /metrics/prometheus';
