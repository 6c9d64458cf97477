-- Partition clean-up: deletes partitions that hold nothing and that nobody used for long.
--
-- Locks: one partition row FOR UPDATE, then its cursors by (partition, group), then the queue and the
-- subscriptions of its groups, all with SKIP LOCKED. The conditions are tested after the locks, in new statements: a statement that waited
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

-- A group that pops by partition is known by its cursors alone. What comes to a new partition of the
-- same name shall not be skipped, so its start there is noted, as for a pop that came before the
-- partition. Inserted as in pop.sql, where nothing waits either.
CREATE FUNCTION queen.log_note_groups(partition uuid) RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    place record;
    name  text;
BEGIN
    SELECT q.id AS queue_id, q.tenant_id, p.name INTO place
      FROM queen.log_partitions AS p
      JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE p.id = partition
       FOR KEY SHARE OF q SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    FOR name IN
        SELECT c.consumer_group
          FROM queen.log_consumers AS c
         WHERE c.partition_id = partition AND c.consumer_group <> '__QUEUE_MODE__'
           AND NOT EXISTS (SELECT
                             FROM queen.consumer_groups_metadata AS m
                            WHERE m.queue_id = place.queue_id
                              AND m.consumer_group = c.consumer_group
                              AND m.partition_name IN ('', place.name))
    LOOP
        IF NOT pg_try_advisory_xact_lock(queen.log_subscription_key(place.queue_id, name)) THEN
            RETURN false;
        END IF;
        INSERT INTO queen.consumer_groups_metadata
               (tenant_id, consumer_group, queue_id, partition_name, subscription_mode,
                subscription_timestamp)
        VALUES (place.tenant_id, name, place.queue_id, place.name, 'all', 'epoch')
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION queen.log_note_groups(uuid) IS
    'Notes that the groups which have a cursor on the partition, and no subscription that says where they start, read all of what comes to a partition of its name; false when another session is at it. The caller holds the partition and its cursors';

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
    IF wanted OR used_at >= instant - age OR txns = max_rows
       OR NOT queen.log_note_groups(partition) THEN
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
