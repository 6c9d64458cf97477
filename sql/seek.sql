-- Seek: moves the cursors of a consumer group, forwards or back.
--
-- Locks: the subscription of the group to the queue (advisory, so that no first contact adds a
-- cursor meanwhile), then partitions ascending by id, then their cursors. A step moves at most
-- max_rows cursors, and the caller commits after it: no pop, acknowledgement or push waits for
-- more than that, however many partitions the queue has.

CREATE FUNCTION queen.log_seek(tenant uuid, consumer_group text, queue text, partition text,
                               target timestamptz, resume text, max_rows int,
                               OUT queue_id uuid, OUT moved int, OUT next text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    ids     uuid[];
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    IF consumer_group = '' OR queen.log_valid_name(consumer_group) IS NOT TRUE THEN
        RAISE EXCEPTION 'invalid consumer group name' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF target IS NULL THEN
        RAISE EXCEPTION 'a seek needs a target' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    moved := 0;
    SELECT q.id INTO queue_id
      FROM queen.queues q
     WHERE q.tenant_id = tenant AND q.name = queue AND q.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock(queen.log_subscription_key(queue_id, consumer_group));
    SELECT array_agg(p.id),
           CASE WHEN partition IS NULL AND count(*) = max_rows THEN max(p.name) END
      INTO ids, next
      FROM (SELECT n.id, n.name
              FROM queen.log_partitions n
             WHERE n.queue_id = queue_id AND n.name = partition
            UNION ALL
            (SELECT a.id, a.name
               FROM queen.log_partitions a
              WHERE partition IS NULL AND a.queue_id = queue_id
                AND a.name > coalesce(resume, '')
              ORDER BY a.name
              LIMIT max_rows)) p;
    PERFORM FROM queen.log_partitions p WHERE p.id = ANY (ids) ORDER BY p.id FOR KEY SHARE;
    PERFORM FROM queen.log_consumers c
      WHERE c.partition_id = ANY (ids) AND c.consumer_group = consumer_group
      ORDER BY c.partition_id
        FOR NO KEY UPDATE;

    -- The ends of the log are read after the cursors were obtained.
    INSERT INTO queen.log_consumers AS c (partition_id, consumer_group, committed)
    SELECT p.id, consumer_group,
           CASE WHEN target = 'infinity' THEN p.last_offset
                ELSE queen.log_offset_before(p.id, p.log_start, p.last_offset, target) END
      FROM queen.log_partitions p
     WHERE p.id = ANY (ids)
     ORDER BY p.id
    ON CONFLICT ON CONSTRAINT log_consumers_pkey DO UPDATE
       SET committed = excluded.committed, batch_end = NULL, worker_id = NULL,
           lease_expires_at = NULL, batch_retry_count = 0, attempt_offset = NULL,
           attempt_count = 0;
    GET DIAGNOSTICS moved = ROW_COUNT;
    -- After the cursors: whoever moves the watermark now sees them, or sees this transaction.
    DELETE FROM queen.consumer_watermarks w
     WHERE w.queue_id = queue_id AND w.consumer_group = consumer_group;
    PERFORM queen.stat_lease_done(queue_id, k.id, consumer_group, true) FROM unnest(ids) AS k (id);
END
$$;
COMMENT ON FUNCTION queen.log_seek(uuid, text, text, text, timestamptz, text, int) IS
    'One step of a seek: puts the group''s cursors on at most max_rows partitions of the queue before the first segment stamped at or after target (infinity: the end of the log; -infinity: its beginning; also the end when there is no such segment), adds those that are missing, ends their leases and resets their retry budget. partition NULL means all of them: then next is what to pass as resume (NULL at first) in the following step, in a transaction of its own, and NULL after the last. moved is how many cursors this step has put. queue_id is NULL when the tenant has no such queue. Waits for sessions that hold the cursors. Raises 22023 for a bad group name, no target and max_rows below 1, 0A000 outside READ COMMITTED';
