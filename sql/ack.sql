-- Ack: resolves transaction ids to offsets, moves cursors, releases leases, files dead letters.
-- See ack.c.

CREATE FUNCTION queen.log_dead_letter(partition_id uuid, consumer_group text,
                                      message_offset bigint, transaction_id text, error text,
                                      retry_count int) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    segment queen.log_segments;
    frame   record;
    fault   text;
BEGIN
    SELECT s.* INTO segment
      FROM queen.log_segments s
     WHERE s.partition_id = log_dead_letter.partition_id AND s.base_offset <= message_offset
     ORDER BY s.base_offset DESC
     LIMIT 1;
    fault := CASE WHEN segment.end_offset >= message_offset
                  THEN queen.log_segment_error(
                           segment.blob, (segment.end_offset - segment.base_offset + 1)::int)
                  ELSE 'its segment is gone' END;
    -- NULL for the blob yields a frame of NULLs: filing must never block the partition.
    SELECT f.* INTO frame
      FROM queen.log_frame(CASE WHEN fault IS NULL THEN segment.blob END,
                           (message_offset - segment.base_offset)::int) f;
    INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", message_id, transaction_id,
                               payload, error, retry_count, flags, producer_sub)
    VALUES (partition_id, consumer_group, message_offset, frame.message_id,
            coalesce(frame.transaction_id, transaction_id), frame.payload,
            error || coalesce(' (message unreadable: ' || fault || ')', ''),
            retry_count, coalesce(frame.flags, 0), frame.producer_sub);
END
$$;
COMMENT ON FUNCTION queen.log_dead_letter(uuid, text, bigint, text, text, int) IS
    'Files one message as a dead letter. A message that cannot be read is filed with the given transaction id and no payload, and the error says why';

CREATE FUNCTION queen.log_ack(tenants uuid[], partition_ids uuid[], groups text[], workers uuid[],
                              calls int[], statuses text[], errors text[], counts int[],
                              transaction_ids text[], wait boolean)
RETURNS TABLE (entry int, messages int, success boolean, error text, lease_released boolean,
               dlq boolean, noop boolean, busy boolean, queue text, partition text, more boolean)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_ack(uuid[], uuid[], text[], uuid[], int[], text[], text[], int[],
                                  text[], boolean) IS
    'Acknowledges messages. Aligned arrays, one element per entry: tenant, partition, group, worker (NULL: no lease check), call (equal numbers with equal tenant, partition, group and worker make one acknowledgement), status (completed, failed, retry or dlq), error text (for the dead letter) and how many messages these hold for: entry after entry takes that many of the transaction ids. wait: whether to wait for cursors that another session holds, else they answer busy. The messages of an entry in order, one row for as many in succession (messages) as fared alike; refusals are in column error. Raises 22023 for arrays that are NULL or of unequal length and for counts below 1 or that do not add up to the transaction ids, 0A000 outside READ COMMITTED';
