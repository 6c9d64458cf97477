-- Lease expiry: ends leases that ran out, so that a waiting consumer need not find out by itself.
-- Only a convenience: every pop and every acknowledgement judges expiry on its own.
--
-- Locks: cursor rows, ascending by (partition, group), with SKIP LOCKED: whoever holds one is
-- renewing, acknowledging or claiming it.

CREATE FUNCTION queen.lease_expiry_step(max_rows int, partition_ids uuid[] DEFAULT NULL,
                                        groups text[] DEFAULT NULL)
RETURNS TABLE (rows bigint, messages bigint, bytes bigint, more boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET jit = off
AS $$
DECLARE
    instant CONSTANT timestamptz := clock_timestamp();
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    IF partition_ids IS NULL THEN
        SELECT array_agg(c.partition_id), array_agg(c.consumer_group)
          INTO partition_ids, groups
          FROM (SELECT k.partition_id, k.consumer_group
                  FROM queen.log_consumers AS k
                 WHERE k.lease_expires_at < instant
                 LIMIT max_rows) AS c;
    ELSE
        PERFORM queen.log_check_arrays(cardinality(partition_ids), cardinality(groups));
    END IF;

    WITH expired AS MATERIALIZED (
        SELECT c.partition_id, c.consumer_group, c.batch_end - c.committed AS messages, p.queue_id
          FROM unnest(partition_ids, groups) AS e (partition_id, consumer_group)
          JOIN queen.log_consumers AS c USING (partition_id, consumer_group)
          JOIN queen.log_partitions AS p ON p.id = c.partition_id
         WHERE c.lease_expires_at < instant
         ORDER BY c.partition_id, c.consumer_group COLLATE "C"
         LIMIT max_rows
           FOR NO KEY UPDATE OF c SKIP LOCKED
    ), ended AS (
        UPDATE queen.log_consumers AS c
           SET worker_id = NULL, lease_expires_at = NULL, batch_end = NULL
          FROM expired AS e
         WHERE c.partition_id = e.partition_id AND c.consumer_group = e.consumer_group
        RETURNING e.messages, e.queue_id
    ), counted AS (
        SELECT q.leases, q.messages, queen.stat_expired(q.queue_id, q.leases)
          FROM (SELECT e.queue_id, count(*)::int AS leases, sum(e.messages) AS messages
                  FROM ended AS e
                 GROUP BY e.queue_id) AS q
    )
    SELECT coalesce(sum(c.leases), 0), coalesce(sum(c.messages), 0), 0
      INTO rows, messages, bytes
      FROM counted AS c;
    more := rows = max_rows;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION queen.lease_expiry_step(int, uuid[], text[]) IS
    'One step of lease expiry: ends at most max_rows leases that ran out. With arrays (aligned: partition, group) it looks at these cursors only, without at all of them, by a scan. Redelivery counters and retry budgets stay as they are. Returns leases ended and messages that they held, and whether to step again at once. Raises 22023 for max_rows below 1 or arrays of unequal length, 0A000 outside READ COMMITTED';
