-- Counting: what the procedures report while they work. It takes effect when the transaction
-- commits, and does nothing in a server that has not preloaded the library.

CREATE FUNCTION queen.stat_ack(queue_id uuid, completed bigint, failed bigint, retried bigint,
                               dead_lettered bigint, dropped bigint) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_ack(uuid, bigint, bigint, bigint, bigint, bigint) IS
    'Counts messages that were completed, dead-lettered or dropped, and batches that were failed or given back for a retry';

CREATE FUNCTION queen.stat_lease(partition_id uuid, consumer_group text, expires_at timestamptz,
                                 worker uuid) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_lease(uuid, text, timestamptz, uuid) IS
    'Enters a lease of the worker, or its new end, into the schedule of the lease expiry worker, and notes the partition for renewals';

CREATE FUNCTION queen.log_lease_partitions(worker uuid) RETURNS uuid[]
LANGUAGE c VOLATILE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_lease_partitions(uuid) IS
    'All partitions with a lease of the worker, and perhaps some that it has no more; NULL when they have to be searched for: unknown lease, too many partitions, no preload';

CREATE FUNCTION queen.stat_lease_done(queue_id uuid, partition_id uuid, consumer_group text,
                                      more boolean) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_lease_done(uuid, uuid, text, boolean) IS
    'A lease was ended. more: messages wait behind the cursor; the queue is announced and pops find the partition. To be called while the cursor is locked';

CREATE FUNCTION queen.stat_doubt(queue_id uuid) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_doubt(uuid) IS
    'Cursors of the queue were moved back, leases ended by hand, or options changed that bear on delivery: pops search all its partitions again before they find nothing. To be called by whoever does so other than through the functions of the extension';

CREATE FUNCTION queen.stat_retention(queue_id uuid, messages bigint) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_retention(uuid, bigint) IS
    'Counts messages that retention has deleted';

CREATE FUNCTION queen.stat_expired(queue_id uuid, leases int) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_expired(uuid, int) IS
    'Counts leases that ran out and were released, and has the queue announced';

CREATE FUNCTION queen.stat_parked(queue_ids uuid[], parked int[]) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_parked(uuid[], int[]) IS
    'How many pops this session''s front end has parked per queue, in place of what the session reported before; forgotten when the session ends. Elements without a queue id count for nothing. Raises 22023 for arrays of unequal length, 22004 for a NULL count';

CREATE FUNCTION queen.log_parked(tenants uuid[], queues text[], parked int[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    PERFORM queen.log_check_arrays(cardinality(tenants), cardinality(queues), cardinality(parked));
    PERFORM queen.stat_parked(
        ARRAY(SELECT (SELECT q.id FROM queen.queues AS q
                       WHERE q.tenant_id = e.tenant AND q.name = e.queue)
                FROM unnest(tenants, queues) WITH ORDINALITY AS e (tenant, queue, n)
               ORDER BY e.n),
        parked);
END
$$;
COMMENT ON FUNCTION queen.log_parked(uuid[], text[], int[]) IS
    'How many pops the front end has parked per queue, as stat_parked. Queues that do not exist count for nothing. Raises 22023 for arrays of unequal length, 22004 for a NULL count';
