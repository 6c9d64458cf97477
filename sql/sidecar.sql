-- Sidecar purge: deletes hashes that neither deduplication nor an acknowledgement asks for.
--
-- Locks: as retention, one partition row.

-- A transaction that created the partition may have read the queue's options before they changed,
-- and have been invisible to the walk that followed: retention_at is put right here.
CREATE FUNCTION queen.log_purge(partition uuid, instant timestamptz, max_rows int,
                                OUT rows bigint, OUT messages bigint, OUT bytes bigint)
LANGUAGE plpgsql
AS $$
DECLARE
    p        queen.log_partitions;
    q        queen.queues;
    age      interval;
    txn      record;
    boundary bigint;             -- last offset that goes
    oldest   timestamptz;        -- stamp of the first row that stays
BEGIN
    rows := 0;
    messages := 0;
    bytes := 0;
    SELECT r.* INTO p
      FROM queen.log_due AS d
      JOIN queen.log_partitions AS r ON r.id = d.partition_id
     WHERE d.partition_id = partition AND d.purge_at <= instant;
    IF NOT FOUND THEN
        RETURN;                  -- another session did it before the lock was obtained
    END IF;
    SELECT r.* INTO q FROM queen.queues AS r WHERE r.id = p.queue_id;
    age := queen.log_sidecar_age(q);

    FOR txn IN
        SELECT t.base_offset, t.end_offset, t.created_at, length(t.hashes) AS bytes
          FROM queen.log_txns AS t
         WHERE t.partition_id = p.id AND t.base_offset >= p.txns_start
         ORDER BY t.base_offset
         LIMIT max_rows::bigint + 1
    LOOP
        oldest := txn.created_at;
        EXIT WHEN txn.created_at >= instant - age OR rows = max_rows;
        boundary := txn.end_offset;
        rows := rows + 1;
        messages := messages + txn.end_offset - txn.base_offset + 1;
        bytes := bytes + txn.bytes;
        oldest := NULL;
    END LOOP;

    IF rows > 0 THEN
        DELETE FROM queen.log_txns AS t
         WHERE t.partition_id = p.id AND t.base_offset BETWEEN p.txns_start AND boundary;
        UPDATE queen.log_partitions AS r SET txns_start = boundary + 1 WHERE r.id = p.id;
    END IF;
    UPDATE queen.log_due AS d
       SET purge_at = CASE WHEN oldest < instant - age THEN d.purge_at
                           ELSE queen.log_purge_at(q, oldest, instant) END,
           retention_at = least(d.retention_at,
                                queen.log_retention_at(q, queen.log_oldest_segment(p), instant))
     WHERE d.partition_id = p.id;
END
$$;
COMMENT ON FUNCTION queen.log_purge(uuid, timestamptz, int) IS
    'Deletes the sidecar rows of a partition that are due at instant, at most max_rows, and sets the time of the next visit. Returns rows, messages and bytes of hashes. The caller holds the partition';

CREATE FUNCTION queen.sidecar_purge_step(max_rows int)
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
    target := coalesce(queen.log_take_due('purge_at', instant, 'NO KEY UPDATE'),
                       queen.log_await_due('purge_at', instant));
    RETURN QUERY
    SELECT r.*, target IS NOT NULL
      FROM queen.log_purge(target, instant, max_rows) AS r;
END
$$;
COMMENT ON FUNCTION queen.sidecar_purge_step(int) IS
    'One step of the sidecar purge: deletes at most max_rows sidecar rows of one partition that are older than the deduplication window, completed_retention_seconds and 900 seconds. Returns rows, messages and bytes deleted, and whether to step again at once. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED';
