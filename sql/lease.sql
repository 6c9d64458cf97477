-- Leases: renewal, and giving them back.
--
-- Both lock cursors only.

-- Two probes of primary keys, which a join would not be for certain.
CREATE FUNCTION queen.log_tenant(partition_id uuid) RETURNS uuid
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT q.tenant_id
              FROM queen.queues q
             WHERE q.id = (SELECT p.queue_id
                             FROM queen.log_partitions p
                            WHERE p.id = log_tenant.partition_id)
               AND q.deleted_at IS NULL);
END
$$;
COMMENT ON FUNCTION queen.log_tenant(uuid) IS
    'The tenant that owns a partition; NULL when there is none, or its queue is deleted';

-- Several cursors are locked in one order, ascending by (partition, group). No index on worker_id
-- exists, because it would have to follow every claim: shared memory knows the partitions of a
-- lease, and where it does not, all cursors are read. What that finds is known from then on. The
-- search has a price that would start the just-in-time compiler, executed or not.
CREATE FUNCTION queen.log_renew(tenant uuid, worker uuid, seconds int, partition_ids uuid[],
                                OUT renewed int, OUT expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    PERFORM queen.log_guard();
    IF (seconds BETWEEN 1 AND 86400) IS NOT TRUE THEN
        RAISE EXCEPTION 'seconds must be between 1 and 86400'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF partition_ids IS NULL THEN
        partition_ids := coalesce(queen.log_lease_partitions(worker),
                                  ARRAY(SELECT c.partition_id FROM queen.log_consumers c
                                         WHERE c.worker_id = worker));
    END IF;

    WITH held AS (
        SELECT c.partition_id, c.consumer_group
          FROM queen.log_consumers c
         WHERE c.partition_id = ANY (partition_ids) AND c.worker_id = worker
           AND c.lease_expires_at >= clock_timestamp()
           AND queen.log_tenant(c.partition_id) = tenant
         ORDER BY c.partition_id, c.consumer_group COLLATE "C"
           FOR NO KEY UPDATE
    ), extended AS (
        UPDATE queen.log_consumers c
           SET lease_expires_at = greatest(c.lease_expires_at,
                                           clock_timestamp() + make_interval(secs => seconds))
          FROM held h
         WHERE c.partition_id = h.partition_id AND c.consumer_group = h.consumer_group
        RETURNING c.partition_id, c.consumer_group, c.lease_expires_at
    )
    SELECT count(*), min(e.lease_expires_at) INTO renewed, expires_at
      FROM (SELECT x.lease_expires_at,
                   queen.stat_lease(x.partition_id, x.consumer_group, x.lease_expires_at, worker)
              FROM extended x
            OFFSET 0) e;
END
$$;
COMMENT ON FUNCTION queen.log_renew(uuid, uuid, int, uuid[]) IS
    'Extends every live lease of the tenant''s worker to at least the given seconds (1..86400) from now; never shortens one, and revives none that is over. partition_ids names the leased partitions; NULL stands for all, which costs a search through all cursors only where the server does not remember them. Returns how many were renewed and the earliest end. Raises 22023 for other seconds, 0A000 outside READ COMMITTED';

-- A cursor that another session holds is passed over: that session is ending the lease, or it ends
-- by itself.
CREATE FUNCTION queen.log_release(tenants uuid[], partition_ids uuid[], groups text[],
                                  workers uuid[])
RETURNS TABLE (entry int, released boolean, queue text, partition text)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    lease    record;
    queue_id uuid;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(cardinality(tenants), cardinality(partition_ids),
                                   cardinality(groups), cardinality(workers));
    FOR lease IN
        SELECT *
          FROM unnest(tenants, partition_ids, groups, workers) WITH ORDINALITY
               AS u (tenant_id, partition_id, consumer_group, worker_id, ord)
         ORDER BY u.ord
    LOOP
        PERFORM FROM queen.log_consumers c
          WHERE c.partition_id = lease.partition_id AND c.consumer_group = lease.consumer_group
            AND c.worker_id = lease.worker_id
            AND queen.log_tenant(c.partition_id) = lease.tenant_id
            FOR NO KEY UPDATE SKIP LOCKED;
        entry := lease.ord;
        released := FOUND;
        queue := NULL;
        partition := NULL;
        IF released THEN
            UPDATE queen.log_consumers c
               SET worker_id = NULL, lease_expires_at = NULL, batch_end = NULL
             WHERE c.partition_id = lease.partition_id AND c.consumer_group = lease.consumer_group;
            SELECT q.name, p.name, q.id INTO queue, partition, queue_id
              FROM queen.log_partitions p
              JOIN queen.queues q ON q.id = p.queue_id
             WHERE p.id = lease.partition_id;
            PERFORM queen.stat_lease_done(queue_id, lease.partition_id, lease.consumer_group,
                                          true);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_release(uuid[], uuid[], text[], uuid[]) IS
    'Gives back leases whose answer could not be delivered: the cursor stays and the retry budget is not charged. Aligned arrays, one element per lease: tenant, partition, group, worker. One row per lease in the same order, with the names of queue and partition when it was released. Never waits for a lock. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED';
