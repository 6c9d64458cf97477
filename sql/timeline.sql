-- Ranges of time, the history that lies in them, and the sums of now: what the status and analytics
-- routes answer from.
--
-- Everything is computed from queue_history, the counters in shared memory, and the offsets of
-- partitions and cursors; nothing reads log_segments or log_txns, except for one probe of a primary
-- key per lagging partition where an age is shown.

CREATE TYPE queen.log_window AS (
    since  timestamptz,
    until  timestamptz,
    bucket interval
);
COMMENT ON TYPE queen.log_window IS
    'A range of time (since, until], cut into buckets that begin at multiples of their width since 1970';

CREATE FUNCTION queen.log_time(name text, value text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF value !~ '^\d{4}-\d\d-\d\d' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_datetime_format';
    END IF;
    RETURN value::timestamptz;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR invalid_parameter_value THEN
    RAISE EXCEPTION '% is not a time', name
        USING ERRCODE = 'invalid_parameter_value', COLUMN = name;
END
$$;
COMMENT ON FUNCTION queen.log_time(text, text) IS
    'A time in ISO 8601; without a zone it is UTC where the session is. NULL for NULL. Raises 22023 with the name in the COLUMN field for anything else';

CREATE FUNCTION queen.log_window(since text, until text, fallback interval) RETURNS queen.log_window
LANGUAGE plpgsql STABLE AS $$
DECLARE
    w       queen.log_window;
    minutes int;
BEGIN
    w.until := coalesce(queen.log_time('to', until), clock_timestamp());
    w.since := coalesce(queen.log_time('from', since), w.until - fallback);
    IF w.since >= w.until OR w.until - w.since > interval '366 days' THEN
        RAISE EXCEPTION 'from must be before to, by at most 366 days'
            USING ERRCODE = 'invalid_parameter_value', COLUMN = 'from';
    END IF;
    -- Who asks for the last hour gets a moment more.
    minutes := CASE WHEN w.until - w.since <= interval '61 minutes' THEN 1
                    WHEN w.until - w.since <= interval '361 minutes' THEN 5
                    WHEN w.until - w.since <= interval '1441 minutes' THEN 15
                    WHEN w.until - w.since <= interval '10081 minutes' THEN 60
                    ELSE 360 END;
    w.bucket := make_interval(mins => minutes);
    RETURN w;
END
$$;
COMMENT ON FUNCTION queen.log_window(text, text, interval) IS
    'The range of time that a client asks for: until now, for as long as fallback, where it does not say. Buckets are of 1 minute up to an hour, 5 up to 6 hours, 15 up to a day, 60 up to a week, else 360. Raises 22023 for a range that is empty or longer than 366 days';

CREATE FUNCTION queen.log_bucket(w queen.log_window, instant timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.date_bin(w.bucket, instant, '1970-01-01 00:00:00+00');
END;
COMMENT ON FUNCTION queen.log_bucket(queen.log_window, timestamptz) IS
    'Start of the bucket that holds a time';

CREATE FUNCTION queen.wire_bucket(bucket timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.to_char(bucket AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
END;
COMMENT ON FUNCTION queen.wire_bucket(timestamptz) IS 'A bucket as answers show it: in whole seconds';

CREATE FUNCTION queen.log_buckets(w queen.log_window) RETURNS SETOF timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.generate_series(queen.log_bucket(w, w.since),
                                      queen.log_bucket(w, w.until), w.bucket);
END;
COMMENT ON FUNCTION queen.log_buckets(queen.log_window) IS 'The buckets of a range';

CREATE FUNCTION queen.log_window_json(w queen.log_window) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_build_object(
               'timeRange', pg_catalog.jsonb_build_object('from', queen.wire_time(w.since),
                                                          'to', queen.wire_time(w.until)),
               'bucketMinutes', (EXTRACT(epoch FROM w.bucket) / 60)::int);
END;
COMMENT ON FUNCTION queen.log_window_json(queen.log_window) IS 'The range as answers show it';

CREATE FUNCTION queen.log_matching(tenant uuid, of_queue text, of_namespace text, of_task text)
RETURNS SETOF queen.queues
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.*
      FROM queen.queues AS q
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
       AND (of_queue IS NULL OR q.name = of_queue)
       AND (of_namespace IS NULL OR q.namespace = of_namespace)
       AND (of_task IS NULL OR q.task = of_task);
END;
COMMENT ON FUNCTION queen.log_matching(uuid, text, text, text) IS
    'The queues of a tenant with that name, namespace and task; NULL matches all';

CREATE FUNCTION queen.log_history(tenant uuid, of_queue text, of_namespace text, of_task text,
                                  w queen.log_window)
RETURNS TABLE (bucket timestamptz, queue text, namespace text, task text, pushes numeric,
               pushed numeric, pops numeric, empty numeric, popped numeric, completed numeric,
               failed numeric, charged numeric, letters numeric, lag numeric, max_lag bigint,
               parked bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT queen.log_bucket(w, h.ended_at), q.name::text, q.namespace::text, q.task::text,
           pg_catalog.sum(h.pushes), pg_catalog.sum(h.push_messages), pg_catalog.sum(h.pops),
           pg_catalog.sum(h.empty_pops), pg_catalog.sum(h.pop_messages),
           pg_catalog.sum(h.acks_completed),
           pg_catalog.sum(h.acks_failed + h.acks_retried + h.dead_letters + h.acks_dropped),
           pg_catalog.sum(h.acks_failed), pg_catalog.sum(h.dead_letters),
           pg_catalog.sum(h.pop_lag), pg_catalog.max(h.max_pop_lag), pg_catalog.max(h.parked)
      FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
      JOIN queen.queue_history AS h
        ON h.queue_id = q.id AND h.ended_at > w.since AND h.ended_at <= w.until
     GROUP BY 1, q.name, q.namespace, q.task;
END;
COMMENT ON FUNCTION queen.log_history(uuid, text, text, text, queen.log_window) IS
    'What the history of these queues says, per bucket and queue. pushed, popped, completed and letters are messages; failed adds up acknowledgements that did not complete something, charged those of them that cost a retry; lag is in milliseconds, summed over popped';

CREATE FUNCTION queen.log_rate(n numeric, w queen.log_window) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.round(n / EXTRACT(epoch FROM w.bucket), 3);
END;
COMMENT ON FUNCTION queen.log_rate(numeric, queen.log_window) IS 'What happened in a bucket, per second';

CREATE FUNCTION queen.log_average_lag(lag numeric, messages numeric) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(pg_catalog.round(lag / nullif(messages, 0), 1), 0);
END;
COMMENT ON FUNCTION queen.log_average_lag(numeric, numeric) IS
    'Milliseconds per message delivered; 0 when there was none';

-- Lag, leases and dead letters of now, whatever the range.
CREATE FUNCTION queen.log_totals(tenant uuid, of_queue text, of_namespace text, of_task text)
RETURNS TABLE (queues bigint, partitions bigint, total bigint, pending bigint, processing bigint,
               completed bigint, dead_letters bigint, leases bigint, leased_partitions bigint,
               leased bigint, consumed bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT pg_catalog.count(DISTINCT q.id), pg_catalog.count(p.id),
           coalesce(pg_catalog.sum(p.total), 0)::bigint,
           coalesce(pg_catalog.sum(p.pending), 0)::bigint,
           coalesce(pg_catalog.sum(p.processing), 0)::bigint,
           coalesce(pg_catalog.sum(p.completed), 0)::bigint,
           coalesce(pg_catalog.sum(p.dead_letters), 0)::bigint,
           coalesce(pg_catalog.sum(c.leases), 0)::bigint,
           pg_catalog.count(*) FILTER (WHERE c.leases > 0),
           coalesce(pg_catalog.sum(c.leased), 0)::bigint,
           coalesce(pg_catalog.sum(c.consumed), 0)::bigint
      FROM queen.log_matching(tenant, of_queue, of_namespace, of_task) AS q
      LEFT JOIN LATERAL queen.partition_counters(q.id) AS p ON true
      LEFT JOIN LATERAL (
            SELECT pg_catalog.count(*) FILTER (WHERE k.live) AS leases,
                   pg_catalog.sum(k.batch_end - k.committed) FILTER (WHERE k.live) AS leased,
                   pg_catalog.sum(k.total_consumed) AS consumed
              FROM (SELECT x.*, x.lease_expires_at > pg_catalog.clock_timestamp() AS live
                      FROM queen.log_consumers AS x
                     WHERE x.partition_id = p.id) AS k) AS c ON true;
END;
COMMENT ON FUNCTION queen.log_totals(uuid, text, text, text) IS
    'Sums over the partitions of these queues: partition_counters, live leases, messages under them, and messages consumed by all groups';
