-- History: once per interval, what the counters of each queue gained, and what they waited for.
--
-- Locks: the row of queue_history_base that keeps steps apart, and nothing that a push, a pop or an
-- acknowledgement wants.

-- The counters say what those of the view say.
DO $$
DECLARE
    counter record;
BEGIN
    FOR counter IN
        SELECT h.attname AS name, col_description(v.attrelid, v.attnum) AS text
          FROM pg_catalog.pg_attribute AS h
          JOIN pg_catalog.pg_attribute AS v
            ON v.attname = h.attname AND v.attrelid = 'queen.pg_stat_queen_queues'::regclass
         WHERE h.attrelid = 'queen.queue_history'::regclass
           AND col_description(h.attrelid, h.attnum) IS NULL
    LOOP
        EXECUTE format('COMMENT ON COLUMN queen.queue_history.%I IS %L', counter.name,
                       counter.text);
    END LOOP;
END
$$;

CREATE FUNCTION queen.log_queue_lag(queue_id uuid) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN (SELECT pg_catalog.count(*)
                        FROM (SELECT FROM queen.log_partitions AS p
                               WHERE p.queue_id = log_queue_lag.queue_id
                               LIMIT 10001) AS p) <= 10000
                THEN (SELECT coalesce(pg_catalog.sum(c.pending), 0)
                        FROM queen.partition_counters(log_queue_lag.queue_id) AS c) END;
END;
COMMENT ON FUNCTION queen.log_queue_lag(uuid) IS
    'Messages pending in a queue, from the offsets of its partitions; NULL when there are more than 10,000 of them';

-- A queue that is not in the base yet, or whose counters were reset, gained all that they show.
CREATE FUNCTION queen.log_record_history(instant timestamptz, since timestamptz) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    n bigint;
BEGIN
    WITH counted AS MATERIALIZED (
        SELECT s.queue_id, s.stats_reset, s.parked,
               ARRAY[s.pushes, s.push_messages, s.push_raw_bytes, s.push_bytes, s.duplicates,
                     s.pops, s.empty_pops, s.pop_messages, s.leases, s.leases_expired,
                     s.acks_completed, s.acks_failed, s.acks_retried, s.dead_letters,
                     s.acks_dropped, s.retention_messages, s.pop_lag] AS counters,
               s.max_pop_lag
          FROM queen.stat_queues() AS s
          JOIN queen.queues AS q ON q.id = s.queue_id
    ), gained AS MATERIALIZED (
        SELECT c.*, greatest(b.taken_at, since, c.stats_reset) AS started_at,
               ARRAY(SELECT u.now - coalesce(u.before, 0)
                       FROM unnest(c.counters, b.counters) WITH ORDINALITY AS u (now, before, i)
                      ORDER BY u.i) AS g
          FROM counted AS c
          LEFT JOIN queen.queue_history_base AS b
            ON b.queue_id = c.queue_id AND b.stats_reset = c.stats_reset
         WHERE c.parked > 0 OR c.counters IS DISTINCT FROM coalesce(b.counters, array_fill(0::bigint, ARRAY[17]))
    ), based AS (
        INSERT INTO queen.queue_history_base (queue_id, stats_reset, counters, taken_at)
        SELECT g.queue_id, g.stats_reset, g.counters, instant FROM gained AS g
        ON CONFLICT (queue_id) DO UPDATE
           SET stats_reset = excluded.stats_reset, counters = excluded.counters,
               taken_at = excluded.taken_at
    )
    INSERT INTO queen.queue_history
    SELECT g.queue_id, g.started_at, instant, g.g[1], g.g[2], g.g[3], g.g[4], g.g[5], g.g[6],
           g.g[7], g.g[8], g.g[9], g.g[10], g.g[11], g.g[12], g.g[13], g.g[14], g.g[15], g.g[16], g.g[17],
           g.max_pop_lag, queen.log_queue_lag(g.queue_id), g.parked
      FROM gained AS g;
    GET DIAGNOSTICS n = ROW_COUNT;
    PERFORM queen.stat_forget_max_lag();
    RETURN n;
END
$$;
COMMENT ON FUNCTION queen.log_record_history(timestamptz, timestamptz) IS
    'Writes a row of history for every queue whose counters moved since the last step, which ran at since, or on which somebody waits. Returns how many. The caller keeps other steps away';

CREATE FUNCTION queen.log_forget_history(instant timestamptz, max_rows int) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    oldest  CONSTANT timestamptz :=
        instant - current_setting('queen.history_retention')::interval;
    removed bigint;
    n       bigint;
BEGIN
    DELETE FROM queen.queue_history AS h
     WHERE h.ctid = ANY (ARRAY(SELECT o.ctid FROM queen.queue_history AS o
                                WHERE o.ended_at < oldest ORDER BY o.ended_at LIMIT max_rows));
    GET DIAGNOSTICS removed = ROW_COUNT;
    DELETE FROM queen.retention_history AS h
     WHERE h.ctid = ANY (ARRAY(SELECT o.ctid FROM queen.retention_history AS o
                                WHERE o.executed_at < oldest
                                ORDER BY o.executed_at LIMIT max_rows - removed));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN removed + n;
END
$$;
COMMENT ON FUNCTION queen.log_forget_history(timestamptz, int) IS
    'Deletes at most max_rows rows of queue_history and retention_history that are older than queen.history_retention, and returns how many';

-- Half an interval keeps a step that is called by hand from cutting the worker's rows to pieces.
CREATE FUNCTION queen.history_step(max_rows int)
RETURNS TABLE (rows bigint, messages bigint, bytes bigint, more boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    instant CONSTANT timestamptz := clock_timestamp();
    step    queen.queue_history_base;
    removed bigint;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    rows := 0;
    messages := 0;
    bytes := 0;
    more := false;
    INSERT INTO queen.queue_history_base (queue_id, counters, taken_at)
    VALUES ('00000000-0000-0000-0000-000000000000', '{}', '-infinity')
    ON CONFLICT DO NOTHING;
    SELECT b.* INTO step
      FROM queen.queue_history_base AS b
     WHERE b.queue_id = '00000000-0000-0000-0000-000000000000'
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;

    IF queen.stat_preloaded()
       AND step.taken_at NOT BETWEEN
           instant - current_setting('queen.history_interval')::interval / 2 AND instant THEN
        rows := queen.log_record_history(instant, step.taken_at);
        UPDATE queen.queue_history_base AS b SET taken_at = instant WHERE b.queue_id = step.queue_id;
        DELETE FROM queen.queue_history_base AS b
         WHERE b.queue_id <> step.queue_id
           AND NOT EXISTS (SELECT FROM queen.queues AS q WHERE q.id = b.queue_id);
    END IF;
    removed := queen.log_forget_history(instant, max_rows);
    rows := rows + removed;
    more := removed = max_rows;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION queen.history_step(int) IS
    'One step of the history: a row per active queue, unless the last ones are younger than half of queen.history_interval, and deletion of at most max_rows rows that are older than queen.history_retention. As many rows are written as queues are tracked, queen.max_tracked_queues at most, none without preload. Returns rows written and deleted, and whether to step again at once. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED';
