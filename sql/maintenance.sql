-- What all front ends share: the maintenance modes, and the replay of their spools.

CREATE FUNCTION queen.log_maintenance(OUT push_mode boolean, OUT pop_mode boolean)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
    SELECT coalesce(bool_or((s.value ->> 'enabled')::boolean)
                        FILTER (WHERE s.key = 'maintenance_mode'), false),
           coalesce(bool_or((s.value ->> 'enabled')::boolean)
                        FILTER (WHERE s.key = 'pop_maintenance_mode'), false)
      FROM queen.system_state AS s;
$$;
COMMENT ON FUNCTION queen.log_maintenance() IS
    'Whether pushes go to the front ends'' spools, and whether pops get nothing';

CREATE FUNCTION queen.log_set_maintenance(mode text, enabled boolean, OUT push_mode boolean,
                                          OUT pop_mode boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    IF mode IS NULL OR mode NOT IN ('maintenance_mode', 'pop_maintenance_mode') OR enabled IS NULL THEN
        RAISE EXCEPTION 'mode must be maintenance_mode or pop_maintenance_mode'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO queen.system_state AS s (key, value)
    VALUES (mode, jsonb_build_object('enabled', enabled))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = clock_timestamp();
    PERFORM pg_notify('queen_wake', 'maintenance');
    SELECT m.push_mode, m.pop_mode INTO push_mode, pop_mode FROM queen.log_maintenance() AS m;
END
$$;
COMMENT ON FUNCTION queen.log_set_maintenance(text, boolean) IS
    'Switches a maintenance mode, maintenance_mode (pushes) or pop_maintenance_mode, and tells the front ends. Returns both. Raises 22023 for another mode';

-- Of several messages with one transaction id, a push names the first. Whether the very message is
-- among them, only their segments tell.
CREATE FUNCTION queen.log_find_spooled(tenant uuid, queue text, partition text, n int, blob bytea,
                                       frames int[], ids uuid[], age interval) RETURNS uuid[]
LANGUAGE sql STABLE
AS $$
    SELECT array_agg(CASE WHEN EXISTS (
                              SELECT
                                FROM queen.queues AS q
                                JOIN queen.log_partitions AS p ON p.queue_id = q.id
                                JOIN queen.log_segments AS s
                                  ON s.partition_id = p.id
                                 AND s.created_at >= clock_timestamp() - age
                               CROSS JOIN LATERAL queen.log_unpack(
                                     s.blob, (s.end_offset - s.base_offset + 1)::int, 0,
                                     (s.end_offset - s.base_offset)::int) AS m
                               WHERE q.tenant_id = tenant AND q.name = queue
                                 AND p.name = partition AND m.message_id = own.message_id)
                          THEN own.message_id ELSE f.original END ORDER BY f.n)
      FROM unnest(frames, ids) WITH ORDINALITY AS f (frame, original, n)
     CROSS JOIN LATERAL queen.log_unpack(blob, log_find_spooled.n, f.frame, f.frame) AS own;
$$;
COMMENT ON FUNCTION queen.log_find_spooled(uuid, text, text, int, bytea, int[], uuid[], interval) IS
    'For frames of a segment whose transaction ids are in a partition already: the own message id of those that were stored there themselves within age, and for the others the given id of the original';

-- What a front end has spooled because it did not learn the outcome may have been stored: it is
-- looked for even if the queue deduplicates nothing.
CREATE FUNCTION queen.log_push_spooled(tenants uuid[], queues text[], partitions text[], counts int[],
                                 hashes bytea[], blobs bytea[], window_floor int)
RETURNS SETOF queen.push_verdict
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET queen.dedup_floor = 0
AS $$
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_provision(tenants, queues, partitions);
    PERFORM set_config('queen.dedup_floor', window_floor::text, true);
    RETURN QUERY
    SELECT v.entry, v.status, v.partition_id, v.base_offset, v.created_at, v.duplicate_frames,
           CASE WHEN v.status = 'duplicate'
                     AND (SELECT q.dedup_window_seconds FROM queen.queues AS q
                           WHERE q.tenant_id = tenants[v.entry] AND q.name = queues[v.entry])
                         < window_floor
                THEN queen.log_find_spooled(tenants[v.entry], queues[v.entry],
                                            partitions[v.entry], counts[v.entry], blobs[v.entry],
                                            v.duplicate_frames, v.duplicate_ids,
                                            make_interval(secs => window_floor))
                ELSE v.duplicate_ids END,
           v.error
      FROM queen.log_push(tenants, queues, partitions, counts, hashes, blobs, false) AS v
     ORDER BY v.entry;
END
$$;
COMMENT ON FUNCTION queen.log_push_spooled(uuid[], text[], text[], int[], bytea[], bytea[], int) IS
    'As log_push without waiting; creates queues and partitions, and deduplicates over window_floor seconds at least. Where that is longer than the queue''s own window, a duplicate that is the very message is named as its own original';
