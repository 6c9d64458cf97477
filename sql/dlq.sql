-- Dead letters: corrupt segments, the list, and what becomes of a letter.

-- The front end reports; what counts is what the database finds in the blob itself. Locks one
-- cursor.
CREATE FUNCTION queen.log_quarantine(tenant uuid, partition_id uuid, consumer_group text,
                                     worker uuid, base_offset bigint,
                                     OUT status text, OUT batch_end bigint)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    place    queen.log_consumers;
    segment  queen.log_segments;
    queue_id uuid;
    fault    text;
    auto     boolean := worker IS NULL;
BEGIN
    PERFORM queen.log_guard();
    SELECT c.* INTO place
      FROM queen.log_consumers c
     WHERE c.partition_id = log_quarantine.partition_id
       AND c.consumer_group = log_quarantine.consumer_group
       AND queen.log_tenant(c.partition_id) = tenant
       FOR NO KEY UPDATE;
    SELECT s.* INTO segment
      FROM queen.log_segments s
     WHERE s.partition_id = log_quarantine.partition_id
       AND s.base_offset = log_quarantine.base_offset;
    status := 'gone';
    IF segment.partition_id IS NULL OR place.partition_id IS NULL THEN
        RETURN;
    END IF;
    IF auto THEN
        IF place.committed < segment.base_offset THEN
            RETURN;
        END IF;
    ELSIF place.worker_id IS DISTINCT FROM worker
          OR queen.log_lease_free(place.worker_id, place.lease_expires_at, clock_timestamp())
          OR segment.end_offset <= place.committed OR segment.base_offset > place.batch_end THEN
        RETURN;
    END IF;

    fault := queen.log_segment_error(segment.blob,
                                     (segment.end_offset - segment.base_offset + 1)::int);
    IF fault IS NULL THEN
        status := 'sound';
        RETURN;
    END IF;
    RAISE WARNING 'corrupt segment %..% of partition %: %',
        segment.base_offset, segment.end_offset, segment.partition_id, fault;

    IF NOT auto AND EXISTS (SELECT FROM queen.log_head(place.partition_id, place.committed + 1) h
                             WHERE h.base_offset < segment.base_offset) THEN
        status := 'cut';
        batch_end := segment.base_offset - 1;
        UPDATE queen.log_consumers c
           SET batch_end = log_quarantine.batch_end
         WHERE c.partition_id = place.partition_id AND c.consumer_group = place.consumer_group;
        RETURN;
    END IF;

    INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", error, retry_count)
    VALUES (place.partition_id, place.consumer_group,
            CASE WHEN auto THEN segment.base_offset
                 ELSE greatest(segment.base_offset, place.committed + 1) END,
            format('corrupt segment %s..%s of partition %s: %s', segment.base_offset,
                   segment.end_offset, segment.partition_id, fault),
            place.batch_retry_count);
    queue_id := (SELECT p.queue_id FROM queen.log_partitions p WHERE p.id = place.partition_id);
    PERFORM queen.stat_ack(queue_id, 0, 0, 0, 1, 0);
    IF auto THEN
        status := 'filed';
        RETURN;
    END IF;

    status := 'skipped';
    batch_end := CASE WHEN place.batch_end > segment.end_offset THEN place.batch_end END;
    UPDATE queen.log_consumers c
       SET committed         = segment.end_offset,
           total_consumed    = c.total_consumed + segment.end_offset - c.committed,
           batch_end         = log_quarantine.batch_end,
           worker_id         = CASE WHEN log_quarantine.batch_end IS NOT NULL THEN c.worker_id END,
           lease_expires_at  = CASE WHEN log_quarantine.batch_end IS NOT NULL
                                    THEN c.lease_expires_at END,
           batch_retry_count = 0,
           -- The rest of a batch stays a batch that has been delivered before.
           attempt_offset    = CASE WHEN log_quarantine.batch_end IS NOT NULL
                                    THEN segment.end_offset + 1 END,
           attempt_count     = CASE WHEN log_quarantine.batch_end IS NOT NULL
                                    THEN c.attempt_count ELSE 0 END
     WHERE c.partition_id = place.partition_id AND c.consumer_group = place.consumer_group;
    IF batch_end IS NULL THEN
        PERFORM queen.stat_lease_done(queue_id, place.partition_id, place.consumer_group, true);
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_quarantine(uuid, uuid, text, uuid, bigint) IS
    'For a segment that a client of the lease could not decode (worker NULL: an auto-acked pop). Answers skipped (a dead letter files the range, the cursor is past it; batch_end is the end of what is still leased, NULL when nothing is), cut (the lease now ends at batch_end, before the range), filed (auto-acked), sound (it decodes here) or gone (no such lease or segment). Logs a WARNING for a corrupt segment. Raises 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_dlq(tenant uuid, of_queue text, of_partition text, of_group text,
                              since timestamptz, until timestamptz, max_rows int, skip int)
RETURNS TABLE (id uuid, transaction_id text, partition_id uuid, queue text, partition text,
               consumer_group text, error text, retry_count int, flags int, payload bytea,
               producer_sub text, failed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    IF (max_rows >= 0 AND skip >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'max_rows and skip must not be negative'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- From each partition no more than could be on the page.
    RETURN QUERY
    SELECT d.id, d.transaction_id, d.partition_id, q.name::text, p.name, d.consumer_group, d.error,
           d.retry_count, d.flags::int, d.payload, d.producer_sub, d.failed_at
      FROM queen.queues q
      JOIN queen.log_partitions p ON p.queue_id = q.id
     CROSS JOIN LATERAL (
           SELECT l.*
             FROM queen.log_dlq l
            WHERE l.partition_id = p.id
              AND (of_group IS NULL OR l.consumer_group = of_group)
              AND l.failed_at >= coalesce(since, '-infinity')
              AND l.failed_at < coalesce(until, 'infinity')
            ORDER BY l.failed_at DESC, l.id
            LIMIT max_rows::bigint + skip) d
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
       AND (of_queue IS NULL OR q.name = of_queue)
       AND (of_partition IS NULL OR p.name = of_partition)
     ORDER BY d.failed_at DESC, d.id
     LIMIT max_rows OFFSET skip;
END
$$;
COMMENT ON FUNCTION queen.log_dlq(uuid, text, text, text, timestamptz, timestamptz, int, int) IS
    'Dead letters of a tenant, newest first: at most max_rows after the first skip ones. NULL for of_queue, of_partition or of_group matches all; since and until (NULL: no limit) select those filed from since on and before until. failed_at is when the message was filed, payload the bytes of the frame (flag 4: an encryption envelope), NULL when it could not be read. Raises 22023 for negative numbers';

CREATE FUNCTION queen.log_dlq_purge(tenant uuid, of_queue text, of_group text, max_rows int)
RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    n int;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    DELETE FROM queen.log_dlq AS d
     WHERE d.id = ANY (ARRAY(
               SELECT l.id
                 FROM queen.queues AS q
                 JOIN queen.log_partitions AS p ON p.queue_id = q.id
                 JOIN queen.log_dlq AS l ON l.partition_id = p.id
                WHERE q.tenant_id = tenant AND q.name = of_queue AND q.deleted_at IS NULL
                  AND (of_group IS NULL OR l.consumer_group = of_group)
                LIMIT max_rows
                  FOR UPDATE OF l SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
COMMENT ON FUNCTION queen.log_dlq_purge(uuid, text, text, int) IS
    'Deletes at most max_rows dead letters of a queue (of_group NULL: of all groups) and returns how many; 0 when none is left. Passes over letters that another session is deleting. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_dlq_delete(tenant uuid, partition_id uuid, transaction_id text)
RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    n int;
BEGIN
    PERFORM queen.log_guard();
    DELETE FROM queen.log_dlq AS d
     WHERE d.partition_id = log_dlq_delete.partition_id
       AND d.transaction_id = log_dlq_delete.transaction_id
       AND queen.log_tenant(log_dlq_delete.partition_id) = tenant;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
COMMENT ON FUNCTION queen.log_dlq_delete(uuid, uuid, text) IS
    'Deletes the dead letters of a message, those of all groups, and returns how many. Raises 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_dlq_letter(tenant uuid, letter uuid, of_partition uuid,
                                     of_transaction_id text)
RETURNS TABLE (id uuid, transaction_id text, queue text, partition text, consumer_group text,
               flags int, payload bytea, producer_sub text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT d.id, d.transaction_id, q.name::text, p.name, d.consumer_group, d.flags::int, d.payload,
           d.producer_sub
      FROM (SELECT l.* FROM queen.log_dlq AS l WHERE l.id = letter
            UNION ALL
            (SELECT l.* FROM queen.log_dlq AS l
              WHERE letter IS NULL AND l.partition_id = of_partition
                AND l.transaction_id = of_transaction_id
              ORDER BY l.failed_at DESC
              LIMIT 1)) AS d
      JOIN queen.log_partitions AS p ON p.id = d.partition_id
      JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL;
END
$$;
COMMENT ON FUNCTION queen.log_dlq_letter(uuid, uuid, uuid, text) IS
    'One dead letter of a tenant: by its id, or, with letter NULL, the newest one of a message. payload as in log_dlq';

-- The push comes first: partitions before anything else. The letter is the last lock, so two who
-- replay one letter wait for each other only here or at the partition.
CREATE FUNCTION queen.log_replay(tenant uuid, letter uuid, queue text, partition text,
                                 hashes bytea, blob bytea,
                                 OUT status text, OUT error text, OUT base_offset bigint,
                                 OUT original uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    verdict queen.push_verdict;
BEGIN
    PERFORM queen.log_guard();
    BEGIN
        PERFORM queen.log_provision(ARRAY[tenant], ARRAY[queue], ARRAY[partition]);
        SELECT v.* INTO verdict
          FROM queen.log_push(ARRAY[tenant], ARRAY[queue], ARRAY[partition], ARRAY[1],
                              ARRAY[hashes], ARRAY[blob], true) AS v;
        IF verdict.status = 'missing' THEN
            RAISE EXCEPTION 'the queue is being deleted' USING ERRCODE = 'serialization_failure';
        END IF;
        IF verdict.status = 'queued' THEN
            DELETE FROM queen.log_dlq AS d
             WHERE d.id = letter AND queen.log_tenant(d.partition_id) = tenant;
        ELSE
            PERFORM FROM queen.log_dlq AS d
              WHERE d.id = letter AND queen.log_tenant(d.partition_id) = tenant;
        END IF;
        IF NOT FOUND THEN
            RAISE SQLSTATE 'QN001';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QN001' THEN
        -- Another session was faster: nothing of this happened.
        status := 'gone';
        RETURN;
    END;
    status := CASE verdict.status WHEN 'queued' THEN 'moved' ELSE verdict.status END;
    error := verdict.error;
    base_offset := verdict.base_offset;
    original := verdict.duplicate_ids[1];
END
$$;
COMMENT ON FUNCTION queen.log_replay(uuid, uuid, text, text, bytea, bytea) IS
    'Moves a dead letter to the tail of a partition, which is created if need be: stores the segment of one message (hashes and blob as in log_push) and removes the letter, both or neither. status moved, duplicate (original: the message that has its transaction id already; the letter stays), gone (there is no such letter), clear or invalid as log_push. Raises 40001 when the queue was deleted meanwhile, 55P03 when lock_timeout ends, 0A000 outside READ COMMITTED';
