-- Transactions: pushes and acknowledgements that commit together or not at all.
--
-- Locks: those of log_provision, then of log_push, then of log_ack: queues, partitions, cursors. A
-- refusal is an answer, not an error: it goes back to the savepoint at the start of the call.

CREATE TYPE queen.transaction_verdict AS (
    entry          int,
    success        boolean,
    error          text,
    reason         text,
    lease_released boolean,
    dlq            boolean,
    noop           boolean,
    queue          text,
    partition      text,
    more           boolean
);
COMMENT ON TYPE queen.transaction_verdict IS
    'Entry 0: what became of the whole transaction; the others: of one of its acknowledgements, as queen.log_ack answers it, or (reason clear) which segment must be encrypted';

CREATE FUNCTION queen.log_transaction_refusal(entry int, error text, reason text)
RETURNS queen.transaction_verdict
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT ROW(entry, false, error, reason, false, false, false, NULL, NULL, false)
           ::queen.transaction_verdict;
END;
COMMENT ON FUNCTION queen.log_transaction_refusal(int, text, text) IS
    'The verdict that rolls a transaction back';

CREATE FUNCTION queen.log_transaction_push(tenant uuid, queues text[], partitions text[],
                                           counts int[], hashes bytea[], blobs bytea[])
RETURNS queen.transaction_verdict[]
LANGUAGE plpgsql AS $$
DECLARE
    tenants  CONSTANT uuid[] := array_fill(tenant, ARRAY[cardinality(queues)]);
    refusals queen.transaction_verdict[];
    clear    queen.transaction_verdict[];
BEGIN
    PERFORM queen.log_provision(tenants, queues, partitions);
    SELECT array_agg(queen.log_transaction_refusal(0, CASE v.status
                         WHEN 'duplicate' THEN format(
                             'transaction id %s is already in partition %s of queue %s',
                             (SELECT to_json(left(f.transaction_id, 255))
                                FROM queen.log_frame(blobs[v.entry], v.duplicate_frames[1]) AS f),
                             to_json(partitions[v.entry]), to_json(queues[v.entry]))
                         WHEN 'missing' THEN 'the queue is being deleted'
                         WHEN 'clear' THEN 'the queue is encrypted and a message is not'
                         ELSE v.error END,
                     CASE v.status WHEN 'invalid' THEN 'bad_request' ELSE v.status END)
                     ORDER BY v.status <> 'clear', v.entry)
               FILTER (WHERE v.status <> 'queued'),
           array_agg(queen.log_transaction_refusal(v.entry, NULL, v.status) ORDER BY v.entry)
               FILTER (WHERE v.status = 'clear')
      INTO refusals, clear
      FROM queen.log_push(tenants, queues, partitions, counts, hashes, blobs, true) AS v;
    -- The caller's retry provisions it again.
    IF refusals[1].reason = 'missing' THEN
        RAISE EXCEPTION '%', refusals[1].error USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN refusals[1:1] || clear;
END
$$;
COMMENT ON FUNCTION queen.log_transaction_push(uuid, text[], text[], int[], bytea[], bytea[]) IS
    'The pushes of a transaction: creates what does not exist, waits for the partitions, stores all segments. Returns the refusal when one is not stored (reason duplicate, clear or bad_request), and after it every segment that must be encrypted; NULL when all are stored. Raises 40001 when a queue vanished meanwhile';

-- Who names a lease, acts only while it is live and holds what is acknowledged: a worker whose
-- lease has passed to another one can neither push again nor ack under that one's lease.
CREATE FUNCTION queen.log_transaction_fence(tenant uuid, partition_ids uuid[], groups text[],
                                            INOUT workers uuid[], leases uuid[],
                                            OUT refusal queen.transaction_verdict)
LANGUAGE plpgsql AS $$
DECLARE
    named     uuid[];
    elsewhere uuid[];                    -- leases that hold none of the acknowledged cursors
    held      queen.log_consumers[];
    instant   timestamptz;
BEGIN
    named := ARRAY(SELECT DISTINCT l FROM unnest(leases || workers) AS l WHERE l IS NOT NULL);
    IF cardinality(named) = 0 THEN
        RETURN;
    END IF;
    elsewhere := ARRAY(
        SELECT n FROM unnest(named) AS n
        EXCEPT
        SELECT c.worker_id
          FROM unnest(partition_ids, groups) AS a (partition_id, consumer_group)
         CROSS JOIN LATERAL (
               SELECT d.worker_id FROM queen.log_consumers AS d
                WHERE d.partition_id = a.partition_id AND d.consumer_group = a.consumer_group
               OFFSET 0) AS c);
    -- All cursors in one statement, in lock order; read again in a younger snapshot.
    PERFORM
       FROM (SELECT k.*
               FROM (SELECT a.*
                       FROM unnest(partition_ids, groups) AS a (partition_id, consumer_group)
                     UNION
                     SELECT c.partition_id, c.consumer_group
                       FROM queen.log_consumers AS c
                      WHERE cardinality(elsewhere) > 0 AND c.worker_id = ANY (elsewhere)) AS k
              WHERE queen.log_tenant(k.partition_id) = tenant
              ORDER BY k.partition_id, k.consumer_group COLLATE "C") AS k
      CROSS JOIN LATERAL (
            SELECT FROM queen.log_consumers AS d
             WHERE d.partition_id = k.partition_id AND d.consumer_group = k.consumer_group
               FOR NO KEY UPDATE) AS c;
    instant := clock_timestamp();
    held := ARRAY(SELECT c
                    FROM (SELECT a.*
                            FROM unnest(partition_ids, groups) AS a (partition_id, consumer_group)
                          UNION
                          SELECT c.partition_id, c.consumer_group
                            FROM queen.log_consumers AS c
                           WHERE cardinality(elsewhere) > 0 AND c.worker_id = ANY (elsewhere)) AS k
                   CROSS JOIN LATERAL (
                         SELECT d.* FROM queen.log_consumers AS d
                          WHERE d.partition_id = k.partition_id
                            AND d.consumer_group = k.consumer_group
                         OFFSET 0) AS c
                   WHERE queen.log_tenant(k.partition_id) = tenant);

    IF EXISTS (SELECT FROM unnest(named) AS n
                WHERE NOT EXISTS (SELECT FROM unnest(held) AS c
                                   WHERE c.worker_id = n
                                     AND NOT queen.log_lease_free(n, c.lease_expires_at, instant)))
       OR EXISTS (SELECT FROM unnest(partition_ids, groups) AS a (partition_id, consumer_group)
                    JOIN unnest(held) AS c
                      ON c.partition_id = a.partition_id AND c.consumer_group = a.consumer_group
                   WHERE (c.worker_id = ANY (named)) IS NOT TRUE
                      OR queen.log_lease_free(c.worker_id, c.lease_expires_at, instant)) THEN
        refusal := queen.log_transaction_refusal(0, 'invalid or expired lease', 'ack_rejected');
        RETURN;
    END IF;
    workers := ARRAY(SELECT coalesce(a.worker_id, c.worker_id)
                       FROM unnest(partition_ids, groups, workers) WITH ORDINALITY
                            AS a (partition_id, consumer_group, worker_id, n)
                       LEFT JOIN unnest(held) AS c
                         ON c.partition_id = a.partition_id
                        AND c.consumer_group = a.consumer_group
                      ORDER BY a.n);
END
$$;
COMMENT ON FUNCTION queen.log_transaction_fence(uuid, uuid[], text[], uuid[], uuid[]) IS
    'When a lease is named, by an acknowledgement (workers) or for the whole transaction (leases): locks the cursors that are acknowledged or leased, and refuses (reason ack_rejected) unless every named lease is live and holds whatever is acknowledged. Fills in the lease of acknowledgements that name none. A lease that holds none of the acknowledged cursors is searched for among all';

CREATE FUNCTION queen.log_transaction_ack(tenant uuid, partition_ids uuid[], groups text[],
                                          workers uuid[], transaction_ids text[],
                                          statuses text[], errors text[], relay boolean)
RETURNS queen.transaction_verdict[]
LANGUAGE plpgsql AS $$
DECLARE
    n CONSTANT int[] := ARRAY[cardinality(partition_ids)];
    verdicts queen.transaction_verdict[];
    refusal  queen.transaction_verdict;
BEGIN
    verdicts := ARRAY(
        SELECT ROW(v.entry, v.success, v.error, NULL, v.lease_released, v.dlq, v.noop, v.queue,
                   v.partition, v.more)::queen.transaction_verdict
          FROM queen.log_ack(array_fill(tenant, n), partition_ids, groups, workers,
                             array_fill(1, n), statuses, errors, array_fill(1, n),
                             transaction_ids, true) AS v
         ORDER BY v.entry);
    -- What was passed before is no fault, so that a transaction of acks may be repeated. One that
    -- pushes under a lease has pushed already.
    SELECT r.* INTO refusal
      FROM unnest(verdicts) AS v
     CROSS JOIN LATERAL queen.log_transaction_refusal(
               0, format('%s (transaction id %s)', coalesce(v.error, 'already committed'),
                         to_json(left(transaction_ids[v.entry], 255))), 'ack_rejected') AS r
     WHERE CASE WHEN v.noop OR v.error = 'already committed' THEN relay ELSE NOT v.success END
     ORDER BY v.entry
     LIMIT 1;
    RETURN CASE WHEN refusal.entry IS NULL THEN verdicts ELSE ARRAY[refusal] END;
END
$$;
COMMENT ON FUNCTION queen.log_transaction_ack(uuid, uuid[], text[], uuid[], text[], text[], text[],
                                              boolean) IS
    'The acknowledgements of a transaction: one verdict each, or one refusal (entry 0, reason ack_rejected). relay: whether an acknowledgement below the cursor is refused';

CREATE FUNCTION queen.log_transaction(tenant uuid, queues text[], partitions text[], counts int[],
                                      hashes bytea[], blobs bytea[], partition_ids uuid[],
                                      groups text[], workers uuid[], transaction_ids text[],
                                      statuses text[], errors text[], leases uuid[])
RETURNS SETOF queen.transaction_verdict
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    refusals queen.transaction_verdict[];
    verdicts queen.transaction_verdict[];
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(cardinality(queues), cardinality(partitions),
                                   cardinality(counts), cardinality(hashes), cardinality(blobs));
    PERFORM queen.log_check_arrays(cardinality(partition_ids), cardinality(groups),
                                   cardinality(workers), cardinality(transaction_ids),
                                   cardinality(statuses), cardinality(errors));
    IF tenant IS NULL OR leases IS NULL THEN
        RAISE EXCEPTION 'tenant and leases must not be null'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    BEGIN
        IF cardinality(queues) > 0 THEN
            refusals := queen.log_transaction_push(tenant, queues, partitions, counts, hashes,
                                                   blobs);
        END IF;
        IF refusals IS NULL THEN
            SELECT f.workers, CASE WHEN (f.refusal).entry = 0 THEN ARRAY[f.refusal] END
              INTO workers, refusals
              FROM queen.log_transaction_fence(tenant, partition_ids, groups, workers, leases) AS f;
        END IF;
        IF refusals IS NULL AND cardinality(partition_ids) > 0 THEN
            verdicts := queen.log_transaction_ack(
                tenant, partition_ids, groups, workers, transaction_ids, statuses, errors,
                cardinality(queues) > 0
                    AND cardinality(array_remove(leases || workers, NULL)) > 0);
            IF verdicts[1].entry = 0 THEN
                refusals := verdicts;
            END IF;
        END IF;
        IF refusals IS NOT NULL THEN
            RAISE SQLSTATE 'QN001';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QN001' THEN
        -- Nothing of it happened.
        RETURN QUERY SELECT r.* FROM unnest(refusals) AS r;
        RETURN;
    END;
    RETURN QUERY
    SELECT 0, true, NULL::text, NULL::text, false, false, false, NULL::text, NULL::text, false
    UNION ALL
    SELECT v.* FROM unnest(verdicts) AS v;
END
$$;
COMMENT ON FUNCTION queen.log_transaction(uuid, text[], text[], int[], bytea[], bytea[], uuid[],
                                          text[], uuid[], text[], text[], text[], uuid[]) IS
    'Pushes and acknowledges, all or nothing. queues, partitions, counts, hashes, blobs: segments as of log_push; what does not exist is created. partition_ids, groups, workers, transaction_ids, statuses, errors: messages as of log_ack, one element each. leases: these must be live as well. The first row, entry 0, says what became of it; after a success one row per acknowledged message follows, after reason clear one row per segment that must be encrypted. Other reasons: duplicate, ack_rejected, bad_request. When a lease is named anywhere, the holder of each acknowledged cursor must be among the named, and a message below the cursor is refused if there are pushes. Waits for locks. Raises 22023 for arrays that are NULL or of unequal length, 40001 when a queue was deleted meanwhile, 0A000 outside READ COMMITTED, 55P03 when lock_timeout ends';
