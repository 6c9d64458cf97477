-- Dead letters: corrupt segments, and the list.

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

CREATE FUNCTION queen.log_dlq(tenant uuid, of_queue text, of_group text, max_rows int, skip int)
RETURNS TABLE (id uuid, transaction_id text, partition_id uuid, queue text, partition text,
               consumer_group text, error text, retry_count int, flags int, payload bytea,
               producer_sub text, failed_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF (max_rows >= 0 AND skip >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'max_rows and skip must not be negative'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY
    SELECT d.id, d.transaction_id, d.partition_id, q.name::text, p.name, d.consumer_group, d.error,
           d.retry_count, d.flags::int, d.payload, d.producer_sub, d.failed_at
      FROM queen.queues q
      JOIN queen.log_partitions p ON p.queue_id = q.id
      JOIN queen.log_dlq d ON d.partition_id = p.id
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
       AND (of_queue IS NULL OR q.name = of_queue)
       AND (of_group IS NULL OR d.consumer_group = of_group)
     ORDER BY d.failed_at DESC, d.id
     LIMIT max_rows OFFSET skip;
END
$$;
COMMENT ON FUNCTION queen.log_dlq(uuid, text, text, int, int) IS
    'Dead letters of a tenant, newest first: at most max_rows after the first skip ones. NULL for of_queue or of_group matches all. failed_at is when the message was filed, payload the bytes of the frame (flag 4: an encryption envelope), NULL when it could not be read. Raises 22023 for negative numbers';
