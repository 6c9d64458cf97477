-- Retention: deletes the oldest messages of a partition, whole segments only.
--
-- Locks: one partition row, FOR NO KEY UPDATE. Pushes to that partition wait for the step, nothing
-- else does. A partition that somebody else holds is passed over, and waited for briefly when only
-- such ones are left. A walk's row is locked before the partition that it comes to.

-- By namespace or task a group subscribes to queues that it has not met.
CREATE FUNCTION queen.log_subscriptions(p queen.log_partitions)
RETURNS SETOF queen.consumer_groups_metadata
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT m.*
      FROM queen.consumer_groups_metadata AS m
     WHERE m.queue_id = p.queue_id AND m.partition_name IN ('', p.name)
    UNION ALL
    SELECT m.*
      FROM queen.queues AS q
      JOIN queen.consumer_groups_metadata AS m
        ON m.queue_id IS NULL AND m.tenant_id = q.tenant_id
       AND m.namespace IN ('', q.namespace) AND m.task IN ('', q.task)
     WHERE q.id = p.queue_id
       AND NOT EXISTS (SELECT
                         FROM queen.consumer_groups_metadata AS d
                        WHERE d.queue_id = q.id AND d.consumer_group = m.consumer_group
                          AND d.partition_name = '');
END;
COMMENT ON FUNCTION queen.log_subscriptions(queen.log_partitions) IS
    'The subscriptions that decide where groups start on the partition: to the partition, to its queue, or else to the namespace or task of the queue';

-- A group that subscribed before it met the partition counts with the cursor that it would get.
CREATE FUNCTION queen.log_completed(p queen.log_partitions) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(least(
               (SELECT pg_catalog.min(c.committed)
                  FROM queen.log_consumers AS c
                 WHERE c.partition_id = p.id),
               (SELECT pg_catalog.min(queen.log_offset_before(p.id, p.log_start, p.last_offset,
                                                              queen.log_subscription_start(
                                                                  m, p.created_at)))
                  FROM queen.log_subscriptions(p) AS m
                 WHERE NOT EXISTS (SELECT
                                     FROM queen.log_consumers AS c
                                    WHERE c.partition_id = p.id
                                      AND c.consumer_group = m.consumer_group))), -1)
     WHERE EXISTS (SELECT FROM queen.log_consumers AS c WHERE c.partition_id = p.id)
        OR EXISTS (SELECT
                     FROM queen.log_subscriptions(p) AS m
                    WHERE m.existing_from IS NOT NULL AND p.created_at < m.created_at);
END;
COMMENT ON FUNCTION queen.log_completed(queen.log_partitions) IS
    'Offset up to which every consumer group is done with the partition; NULL when it has no cursor, and no group subscribed to the queue when it existed';

CREATE FUNCTION queen.log_retain(partition uuid, instant timestamptz, max_rows int,
                                 OUT rows bigint, OUT messages bigint, OUT bytes bigint)
LANGUAGE plpgsql
AS $$
DECLARE
    -- Deleting a blob is deleting its chunks of 2 kB: a bound for the time of a step.
    max_bytes CONSTANT bigint := 16 * 1024 * 1024;
    p         queen.log_partitions;
    q         queen.queues;
    rule      record;
    completed bigint;
    segment   record;
    reason    text;              -- why this segment goes, NULL when it stays
    kind      text;              -- why all before it go
    boundary  bigint;            -- last offset that goes
    oldest    timestamptz;       -- stamp of the first segment that stays
BEGIN
    rows := 0;
    messages := 0;
    bytes := 0;
    SELECT r.* INTO p
      FROM queen.log_due AS d
      JOIN queen.log_partitions AS r ON r.id = d.partition_id
     WHERE d.partition_id = partition AND d.retention_at <= instant;
    IF NOT FOUND THEN
        RETURN;                  -- another session did it before the lock was obtained
    END IF;
    SELECT r.* INTO q FROM queen.queues AS r WHERE r.id = p.queue_id;
    rule := queen.log_retention_rules(q);
    completed := CASE WHEN rule.completed IS NOT NULL THEN queen.log_completed(p) END;

    FOR segment IN
        SELECT s.base_offset, s.end_offset, s.created_at, length(s.blob) AS bytes
          FROM queen.log_segments AS s
         WHERE s.partition_id = p.id AND s.base_offset >= p.log_start
         ORDER BY s.base_offset
         LIMIT max_rows::bigint + 1
    LOOP
        reason := CASE
            WHEN segment.created_at < instant - rule.retention THEN 'retention'
            WHEN segment.created_at < instant - rule.completed AND segment.end_offset <= completed
                THEN 'completed_retention'
            WHEN segment.created_at < instant - rule.eviction THEN 'max_wait_time_eviction' END;
        oldest := segment.created_at;
        EXIT WHEN reason IS NULL OR reason <> kind OR rows = max_rows OR bytes > max_bytes;
        kind := reason;
        boundary := segment.end_offset;
        rows := rows + 1;
        bytes := bytes + segment.bytes;
        oldest := NULL;
    END LOOP;

    IF rows > 0 THEN
        DELETE FROM queen.log_segments AS s
         WHERE s.partition_id = p.id AND s.base_offset BETWEEN p.log_start AND boundary;
        UPDATE queen.log_partitions AS r
           SET log_start = boundary + 1, segments = r.segments - log_retain.rows,
               bytes = r.bytes - log_retain.bytes
         WHERE r.id = p.id;
        messages := boundary + 1 - p.log_start;
        INSERT INTO queen.retention_history (partition_id, messages_deleted, retention_type)
        VALUES (p.id, messages, kind);
        PERFORM queen.stat_retention(p.queue_id, messages);
    END IF;

    IF oldest IS NULL THEN
        UPDATE queen.log_due AS d
           SET retention_at = NULL, idle_since = p.last_write_at
         WHERE d.partition_id = p.id;
    ELSIF reason IS NULL THEN
        UPDATE queen.log_due AS d
           SET retention_at = queen.log_retention_at(q, oldest, instant)
         WHERE d.partition_id = p.id;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_retain(uuid, timestamptz, int) IS
    'Deletes the segments of a partition that are due at instant, at most max_rows and all for the same rule, and sets the time of the next visit. Returns segments, messages and bytes of blobs. The caller holds the partition';

CREATE FUNCTION queen.log_walk_step() RETURNS boolean
LANGUAGE plpgsql
AS $$
DECLARE
    walk   queen.log_due_walks;
    target record;
BEGIN
    -- Any of them: the next partition of one may be held for long.
    SELECT w.* INTO walk
      FROM queen.log_due_walks AS w
     WHERE w.queue_id = ANY (ARRAY(SELECT f.queue_id FROM queen.log_due_walks AS f LIMIT 100))
     ORDER BY random()
     LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT p.id, p.name INTO target
      FROM queen.log_partitions AS p
     WHERE p.queue_id = walk.queue_id AND p.name > walk.after
     ORDER BY p.name
     LIMIT 1;
    IF NOT FOUND THEN
        DELETE FROM queen.log_due_walks AS w WHERE w.queue_id = walk.queue_id;
        RETURN true;
    END IF;
    IF queen.log_await_partition(ARRAY[target.id]) IS NULL THEN
        RETURN false;
    END IF;
    UPDATE queen.log_due AS d
       SET retention_at = queen.log_retention_at(q, queen.log_oldest_segment(p), NULL),
           purge_at = queen.log_purge_at(q, queen.log_oldest_txn(p), NULL)
      FROM queen.log_partitions AS p
      JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE d.partition_id = target.id AND p.id = target.id;
    UPDATE queen.log_due_walks AS w SET after = target.name WHERE w.queue_id = walk.queue_id;
    RETURN true;
END
$$;
COMMENT ON FUNCTION queen.log_walk_step() IS
    'Gives new due times to one partition of a queue whose options became stricter; false when there is none, or another session holds it';

CREATE FUNCTION queen.retention_step(max_rows int)
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
    target  uuid;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    target := coalesce(queen.log_take_due('retention_at', instant, 'NO KEY UPDATE'),
                       queen.log_await_due('retention_at', instant));
    RETURN QUERY
    SELECT r.*, target IS NOT NULL OR queen.log_walk_step()
      FROM queen.log_retain(target, instant, max_rows) AS r;
END
$$;
COMMENT ON FUNCTION queen.retention_step(int) IS
    'One step of retention: deletes at most max_rows segments of one partition that is due, by retention_seconds, completed_retention_seconds or max_wait_time_seconds. Returns segments, messages and bytes deleted, and whether to step again at once. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED';
