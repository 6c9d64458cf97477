-- Partition clean-up: deletes partitions that hold nothing and that nobody used for long.
--
-- Locks: one partition row FOR UPDATE, then its cursors by (partition, group), all with SKIP
-- LOCKED. The conditions are tested after the locks, in new statements: a statement that waited
-- for a lock, or skipped one, still reads the other tables as of its start.

CREATE FUNCTION queen.log_lock_cursors(partition uuid) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    held bigint;
BEGIN
    SELECT count(*) INTO held
      FROM (SELECT FROM queen.log_consumers AS c
             WHERE c.partition_id = partition
             ORDER BY c.consumer_group COLLATE "C"
               FOR UPDATE SKIP LOCKED) AS c;
    RETURN held = (SELECT count(*) FROM queen.log_consumers AS c WHERE c.partition_id = partition);
END
$$;
COMMENT ON FUNCTION queen.log_lock_cursors(uuid) IS
    'Locks the cursors of a partition without waiting; whether it obtained all of them';

CREATE FUNCTION queen.log_clean_up(partition uuid, instant timestamptz, age interval, max_rows int)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    held    CONSTANT boolean := queen.log_lock_cursors(partition);
    used_at timestamptz;         -- last sign of life
    wanted  boolean;             -- something still needs the partition
    txns    bigint;
BEGIN
    SELECT greatest(p.created_at, p.last_write_at, c.used_at),
           NOT held OR c.leased
           OR EXISTS (SELECT FROM queen.log_segments AS s WHERE s.partition_id = p.id)
           OR EXISTS (SELECT FROM queen.log_dlq AS l WHERE l.partition_id = p.id)
           OR EXISTS (SELECT FROM queen.stream_state AS t WHERE t.partition_id = p.id),
           (SELECT count(*) FROM (SELECT FROM queen.log_txns AS t
                                   WHERE t.partition_id = p.id LIMIT max_rows) AS t)
      INTO used_at, wanted, txns
      FROM queen.log_partitions AS p
     CROSS JOIN LATERAL (
            SELECT max(greatest(k.created_at, k.lease_acquired_at)) AS used_at,
                   coalesce(bool_or(k.batch_end IS NOT NULL
                                    AND (k.lease_expires_at > instant
                                         OR k.lease_expires_at IS NULL)), false) AS leased
              FROM queen.log_consumers AS k
             WHERE k.partition_id = p.id) AS c
     WHERE p.id = partition;

    -- A sidecar that is too long for one step is left to the purge.
    IF wanted OR used_at >= instant - age OR txns = max_rows THEN
        UPDATE queen.log_due AS d
           SET idle_since = CASE WHEN used_at >= instant - age THEN used_at ELSE instant END
         WHERE d.partition_id = partition AND d.idle_since <= instant - age;
        RETURN 0;
    END IF;
    DELETE FROM queen.log_txns AS t WHERE t.partition_id = partition;
    INSERT INTO queen.retention_history (partition_id, messages_deleted, retention_type)
    VALUES (partition, 0, '__partition_deleted__');
    DELETE FROM queen.log_partitions AS p WHERE p.id = partition;
    RETURN 1;
END
$$;
COMMENT ON FUNCTION queen.log_clean_up(uuid, timestamptz, interval, int) IS
    'Deletes a partition that is older than age, was not used for as long, and has no segment, no dead letter, no stream state, no live lease and fewer than max_rows sidecar rows; otherwise sets the time of the next visit. Returns the partitions deleted, 0 or 1. The caller holds the partition FOR UPDATE';

CREATE FUNCTION queen.partition_cleanup_step(max_rows int)
RETURNS TABLE (rows bigint, messages bigint, bytes bigint, more boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    instant CONSTANT timestamptz := clock_timestamp();
    age     interval;
    target  uuid;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    age := current_setting('queen.partition_cleanup_age')::interval;
    target := queen.log_take_due('idle_since', instant - age, 'UPDATE');
    RETURN QUERY
    SELECT CASE WHEN target IS NULL THEN 0 ELSE queen.log_clean_up(target, instant, age, max_rows)
           END, 0::bigint, 0::bigint, target IS NOT NULL;
END
$$;
COMMENT ON FUNCTION queen.partition_cleanup_step(int) IS
    'One step of the clean-up: deletes one partition that was empty and unused for queen.partition_cleanup_age. max_rows bounds the sidecar rows that go with it. Returns the partitions deleted, and whether to step again at once. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED';
