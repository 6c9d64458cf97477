-- Streams: the records of stream queries, their state, and the cycle, which changes state, pushes
-- results and acknowledges the source in one transaction.
--
-- Locks of a cycle: its query FOR KEY SHARE, the names and partitions it pushes to, the cursor it
-- acknowledges, then an advisory lock of the query's state on its partition.

CREATE FUNCTION queen.log_stream_query(tenant uuid, query_name text, source text, sink text,
                                       hash text, reset boolean)
RETURNS TABLE (query_id uuid, fresh boolean, was_reset boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
DECLARE
    known queen.stream_queries;
BEGIN
    PERFORM queen.log_guard();
    IF tenant IS NULL OR query_name IS NULL OR source IS NULL OR hash IS NULL THEN
        RAISE EXCEPTION 'tenant, name, source and hash must be given'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    was_reset := false;
    INSERT INTO queen.stream_queries AS r (tenant_id, name, source_queue, sink_queue, config_hash)
    VALUES (tenant, query_name, source, sink, hash)
    ON CONFLICT DO NOTHING
    RETURNING r.id INTO query_id;
    fresh := FOUND;
    IF NOT fresh THEN
        SELECT r.* INTO known
          FROM queen.stream_queries AS r
         WHERE r.tenant_id = tenant AND r.name = query_name
           FOR UPDATE;
        query_id := known.id;
        IF known.config_hash <> hash THEN
            IF reset IS NOT TRUE THEN
                RETURN;
            END IF;
            DELETE FROM queen.stream_state AS t WHERE t.query_id = known.id;
            UPDATE queen.stream_queries AS r
               SET source_queue = source, sink_queue = sink, config_hash = hash,
                   updated_at = clock_timestamp()
             WHERE r.id = known.id;
            was_reset := true;
        END IF;
    END IF;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION queen.log_stream_query(uuid, text, text, text, text, boolean) IS
    'Registers a stream query by its name, or finds it. No row when it is known under another config_hash and reset is not true; with reset its state is wiped and the hash replaced. Waits for cycles of the query that are under way. Raises 22023 for a NULL other than sink and reset, 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_stream_state(tenant uuid, query uuid, partition uuid, keys text[],
                                       prefix text, ripe_at double precision)
RETURNS TABLE (key text, value text, updated_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM queen.stream_queries AS r
                    WHERE r.id = query AND r.tenant_id = tenant) THEN
        RAISE EXCEPTION 'unknown query_id' USING ERRCODE = 'no_data_found';
    END IF;
    RETURN QUERY
    SELECT t.key, t.value, t.updated_at
      FROM queen.stream_state AS t
     WHERE t.query_id = query AND t.partition_id = partition
       AND (cardinality(keys) = 0
            OR t.key_hash = ANY (ARRAY(SELECT queen.log_hash(k) FROM unnest(keys) AS k)))
       AND (prefix IS NULL OR starts_with(t.key, prefix))
       AND (ripe_at IS NULL OR t.window_end <= ripe_at)
     ORDER BY t.key COLLATE "C";
END
$$;
COMMENT ON FUNCTION queen.log_stream_state(uuid, uuid, uuid, text[], text, double precision) IS
    'State of a stream query on one partition, by key: those of the given keys, or all when there are none, that begin with prefix (NULL: any) and whose windowEnd is at most ripe_at, in milliseconds (NULL: any, also without a windowEnd). Raises P0002 for a query that the tenant does not have';

CREATE FUNCTION queen.log_stream_write(query uuid, partition uuid, keys text[], vals text[],
                                       window_ends double precision[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    -- Cycles that acknowledge nothing are kept apart by nothing else.
    PERFORM pg_advisory_xact_lock(hashtextextended(query::text || partition::text, 0));
    -- Of several operations on one key the last one decides.
    WITH operations AS MATERIALIZED (
        SELECT DISTINCT ON (key_hash) u.key_hash, u.key, u.value, u.window_end
          FROM (SELECT queen.log_hash(o.key) AS key_hash, o.*
                  FROM unnest(keys, vals, window_ends) WITH ORDINALITY
                       AS o (key, value, window_end, ord)) AS u
         ORDER BY u.key_hash, u.ord DESC
    ), deleted AS (
        DELETE FROM queen.stream_state AS t
         USING operations AS o
         WHERE t.query_id = query AND t.partition_id = partition AND t.key_hash = o.key_hash
           AND o.value IS NULL
    )
    INSERT INTO queen.stream_state AS t
           (query_id, partition_id, key_hash, key, value, window_end, updated_at)
    SELECT query, partition, o.key_hash, o.key, o.value, o.window_end, clock_timestamp()
      FROM operations AS o
     WHERE o.value IS NOT NULL
     ORDER BY o.key_hash
        ON CONFLICT (query_id, partition_id, key_hash) DO UPDATE
       SET value = excluded.value, window_end = excluded.window_end,
           updated_at = excluded.updated_at;
END
$$;
COMMENT ON FUNCTION queen.log_stream_write(uuid, uuid, text[], text[], double precision[]) IS
    'Writes state: aligned arrays, one element per operation; a value of NULL deletes the key';

-- The cursor is held from here on. What the client acknowledged may end in the middle of the batch.
CREATE FUNCTION queen.log_stream_ack(tenant uuid, partition uuid, consumer_group text, lease uuid,
                                     transaction_id text, status text, whole_batch boolean,
                                     OUT error text, OUT count bigint, OUT released boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    before   queen.log_consumers;
    cursor   queen.log_consumers;
    answer   record;
    place    record;
BEGIN
    SELECT c.* INTO before
      FROM queen.log_consumers AS c
     WHERE c.partition_id = partition AND c.consumer_group = log_stream_ack.consumer_group
       FOR NO KEY UPDATE;
    SELECT a.* INTO answer
      FROM queen.log_ack(ARRAY[tenant], ARRAY[partition], ARRAY[consumer_group], ARRAY[lease],
                         ARRAY[1], ARRAY[status], ARRAY[NULL::text], ARRAY[1],
                         ARRAY[transaction_id], true) AS a;
    error := CASE WHEN NOT answer.success THEN answer.error
                  WHEN answer.noop THEN 'already committed' END;
    IF error IS NOT NULL THEN
        RETURN;
    END IF;

    released := answer.lease_released;
    SELECT c.* INTO cursor
      FROM queen.log_consumers AS c
     WHERE c.partition_id = partition AND c.consumer_group = log_stream_ack.consumer_group;
    count := cursor.committed - before.committed;
    IF whole_batch AND NOT released THEN
        UPDATE queen.log_consumers AS c
           SET committed = cursor.batch_end,
               total_consumed = c.total_consumed + cursor.batch_end - cursor.committed,
               batch_end = NULL, worker_id = NULL, lease_expires_at = NULL,
               batch_retry_count = 0, attempt_count = 0, attempt_offset = NULL
         WHERE c.partition_id = partition AND c.consumer_group = log_stream_ack.consumer_group;
        SELECT p.queue_id, p.last_offset INTO place
          FROM queen.log_partitions AS p WHERE p.id = partition;
        PERFORM queen.stat_ack(place.queue_id, cursor.batch_end - cursor.committed, 0, 0, 0, 0);
        PERFORM queen.stat_lease_done(place.queue_id, partition, consumer_group,
                                      place.last_offset > cursor.batch_end);
        released := true;
        count := cursor.batch_end - before.committed;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_stream_ack(uuid, uuid, text, uuid, text, text, boolean) IS
    'Acknowledges what a cycle has consumed: status completed up to transaction_id, or the whole leased batch; retry gives the batch back. count is how far the cursor moved. error says why it was refused';

-- A refused cycle returns its reason in a row, so what it did before is undone by the block.
CREATE FUNCTION queen.log_stream_cycle(
    tenant uuid, query uuid, partition uuid, keys text[], vals text[],
    window_ends double precision[], queues text[], partitions text[], counts int[],
    hashes bytea[], blobs bytea[], consumer_group text, lease uuid, transaction_id text,
    status text, whole_batch boolean)
RETURNS TABLE (entry int, verdict text, error text, base_offset bigint, duplicate_frames int[],
               queue text, partition_name text, acked bigint, released boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    pushed queen.push_verdict[];
    ack    record;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(cardinality(keys), cardinality(vals), cardinality(window_ends));
    entry := 0;
    verdict := 'refused';
    PERFORM FROM queen.stream_queries AS r
      WHERE r.id = query AND r.tenant_id = tenant FOR KEY SHARE;
    IF NOT FOUND THEN
        error := 'unknown query_id';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT q.name, p.name INTO queue, partition_name
      FROM queen.log_partitions AS p
      JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE p.id = partition AND q.tenant_id = tenant AND q.deleted_at IS NULL;
    IF NOT FOUND THEN
        error := 'unknown partition_id';
        RETURN NEXT;
        RETURN;
    END IF;

    BEGIN
        IF cardinality(queues) > 0 THEN
            PERFORM queen.log_provision(array_fill(tenant, ARRAY[cardinality(queues)]), queues,
                                        partitions);
            pushed := ARRAY(
                SELECT v FROM queen.log_push(array_fill(tenant, ARRAY[cardinality(queues)]),
                                             queues, partitions, counts, hashes, blobs, true) AS v);
            IF EXISTS (SELECT FROM unnest(pushed) AS v WHERE v.status = 'missing') THEN
                RAISE EXCEPTION 'a queue was deleted meanwhile'
                    USING ERRCODE = 'serialization_failure';
            END IF;
            IF EXISTS (SELECT FROM unnest(pushed) AS v WHERE v.status <> 'queued') THEN
                verdict := 'again';
                RAISE SQLSTATE 'QN001';
            END IF;
        END IF;
        IF status IS NOT NULL THEN
            SELECT a.* INTO ack
              FROM queen.log_stream_ack(tenant, partition, consumer_group, lease, transaction_id,
                                        status, whole_batch) AS a;
            IF ack.error IS NOT NULL THEN
                error := ack.error;
                RAISE SQLSTATE 'QN001';
            END IF;
            acked := ack.count;
            released := ack.released;
        END IF;
        PERFORM queen.log_stream_write(query, partition, keys, vals, window_ends);
        verdict := 'done';
    EXCEPTION WHEN SQLSTATE 'QN001' THEN
        NULL;
    END;
    RETURN NEXT;
    RETURN QUERY
    SELECT v.entry, v.status, v.error, v.base_offset, v.duplicate_frames, NULL::text, NULL::text,
           NULL::bigint, NULL::boolean
      FROM unnest(pushed) AS v
     WHERE verdict <> 'refused'
     ORDER BY v.entry;
END
$$;
COMMENT ON FUNCTION queen.log_stream_cycle(uuid, uuid, uuid, text[], text[], double precision[],
                                           text[], text[], int[], bytea[], bytea[], text, uuid,
                                           text, text, boolean) IS
    'One cycle of a stream query on one partition of its source, all or nothing: state operations (as log_stream_write), pushes (as log_push, with wait; what does not exist is created), and the acknowledgement (as log_stream_ack; status NULL: none, and no lease is checked). The row of entry 0 says done, refused (with the reason in error) or again (a push was not possible; nothing was done); it names the queue and partition of the source. A row per push follows, unless it was refused. Raises 22023 for arrays of unequal length, 40001 when a queue was deleted meanwhile, 0A000 outside READ COMMITTED, 55P03 when lock_timeout ends';
