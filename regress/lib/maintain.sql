-- Maintenance steps, run until nothing is due, and what they leave. Needs consume.sql.
TRUNCATE queen.retention_history;

-- The steps that did something, in order.
CREATE FUNCTION pg_temp.retain(max_rows int DEFAULT 1000)
RETURNS TABLE (step int, rows bigint, messages bigint)
LANGUAGE plpgsql AS $$
DECLARE
    done record;
BEGIN
    step := 0;
    LOOP
        SELECT * INTO done FROM queen.retention_step(max_rows);
        IF done.rows > 0 THEN
            step := step + 1;
            rows := done.rows;
            messages := done.messages;
            RETURN NEXT;
        END IF;
        EXIT WHEN NOT done.more;
    END LOOP;
END
$$;

CREATE FUNCTION pg_temp.purge(max_rows int DEFAULT 1000)
RETURNS TABLE (step int, rows bigint, messages bigint, bytes bigint)
LANGUAGE plpgsql AS $$
DECLARE
    done record;
BEGIN
    step := 0;
    LOOP
        SELECT * INTO done FROM queen.sidecar_purge_step(max_rows);
        IF done.rows > 0 THEN
            step := step + 1;
            rows := done.rows;
            messages := done.messages;
            bytes := done.bytes;
            RETURN NEXT;
        END IF;
        EXIT WHEN NOT done.more;
    END LOOP;
END
$$;

CREATE FUNCTION pg_temp.clean_up(max_rows int DEFAULT 1000) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    done  record;
    total bigint := 0;
BEGIN
    LOOP
        SELECT * INTO done FROM queen.partition_cleanup_step(max_rows);
        total := total + done.rows;
        EXIT WHEN NOT done.more;
    END LOOP;
    RETURN total;
END
$$;

CREATE FUNCTION pg_temp.configure(queue text, options jsonb) RETURNS void
LANGUAGE sql AS $$
    SELECT queen.log_configure(pg_temp.tenant(), queue, NULL, NULL, options, 'merge');
$$;

-- Ranges of what a partition holds. "sound" is V-71, S-12 and the counters that listings show.
CREATE FUNCTION pg_temp.log(queue text)
RETURNS TABLE (part text, log_start bigint, log text, txns_start bigint, sidecar text, sound boolean)
LANGUAGE sql AS $$
    SELECT p.name, p.log_start, s.ranges, p.txns_start, t.ranges,
           p.log_start = coalesce(s.first, p.last_offset + 1)
           AND p.txns_start = coalesce(t.first, p.last_offset + 1)
           AND (p.segments, p.bytes) = (s.n, s.bytes)
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
     CROSS JOIN LATERAL (
            SELECT string_agg(base_offset || '-' || end_offset, ' ' ORDER BY base_offset) AS ranges,
                   min(base_offset) AS first, count(*) AS n, coalesce(sum(length(blob)), 0) AS bytes
              FROM queen.log_segments WHERE partition_id = p.id) AS s
     CROSS JOIN LATERAL (
            SELECT string_agg(base_offset || '-' || end_offset, ' ' ORDER BY base_offset) AS ranges,
                   min(base_offset) AS first
              FROM queen.log_txns WHERE partition_id = p.id) AS t
     WHERE q.name = queue
     ORDER BY p.name COLLATE "C";
$$;

CREATE FUNCTION pg_temp.history(queue text)
RETURNS TABLE (part text, messages bigint, kind text)
LANGUAGE sql AS $$
    SELECT p.name, h.messages_deleted, h.retention_type
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
      JOIN queen.retention_history AS h ON h.partition_id = p.id
     WHERE q.name = queue
     ORDER BY h.executed_at;
$$;

-- The due list, as times from now in hundreds of seconds: what is over is due.
CREATE FUNCTION pg_temp.when(t timestamptz) RETURNS text
LANGUAGE sql AS $$
    SELECT CASE WHEN t <= clock_timestamp() THEN 'due'
                ELSE 'in ' || round(extract(epoch FROM t - clock_timestamp()), -2) || ' s' END;
$$;

CREATE FUNCTION pg_temp.due(queue text)
RETURNS TABLE (part text, retention text, purge text, idle boolean)
LANGUAGE sql AS $$
    SELECT p.name, pg_temp.when(d.retention_at), pg_temp.when(d.purge_at), d.idle_since IS NOT NULL
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
      LEFT JOIN queen.log_due AS d ON d.partition_id = p.id
     WHERE q.name = queue
     ORDER BY p.name COLLATE "C";
$$;
