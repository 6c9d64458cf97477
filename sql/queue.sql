-- Queues: creation, configuration, deletion.
--
-- Locks: queue rows by (tenant, name), then one partition, then its cursors.

CREATE FUNCTION queen.log_handshake(OUT protocol int, OUT version text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
    SELECT 1, e.extversion FROM pg_catalog.pg_extension AS e WHERE e.extname = 'queen';
$$;
COMMENT ON FUNCTION queen.log_handshake() IS
    'Version of the calls that the front end makes (protocol), and of the extension. A front end refuses to work with another protocol than its own';

CREATE FUNCTION queen.log_provision(tenants uuid[], queues text[], partitions text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(cardinality(tenants), cardinality(queues),
                                   cardinality(partitions));
    INSERT INTO queen.queues (tenant_id, name, namespace, task)
    SELECT e.tenant, e.queue, split_part(e.queue, '.', 1), split_part(e.queue, '.', 2)
      FROM unnest(tenants, queues) AS e (tenant, queue)
     WHERE e.tenant IS NOT NULL AND queen.log_valid_name(e.queue)
     GROUP BY e.tenant, e.queue
     ORDER BY e.tenant, e.queue COLLATE "C"
    ON CONFLICT DO NOTHING;
    -- The key lock keeps a queue from being drained away between this and the commit. Queue by queue
    -- through the index, whatever the planner makes of the table: there may be thousands of both.
    WITH live AS MATERIALIZED (
        SELECT q.id, w.partitions
          FROM (SELECT e.tenant, e.queue, array_agg(DISTINCT e.partition COLLATE "C") AS partitions
                  FROM unnest(tenants, queues, partitions) AS e (tenant, queue, partition)
                 GROUP BY e.tenant, e.queue
                 ORDER BY e.tenant, e.queue COLLATE "C") AS w
         CROSS JOIN LATERAL (
               SELECT p.id
                 FROM queen.queues AS p
                WHERE p.tenant_id = w.tenant AND p.name = w.queue AND p.deleted_at IS NULL
                  FOR KEY SHARE) AS q
    ), added AS (
        INSERT INTO queen.log_partitions (queue_id, name)
        SELECT l.id, n.name
          FROM live AS l
         CROSS JOIN LATERAL unnest(l.partitions) AS n (name)
         WHERE n.name <> '' AND queen.log_valid_name(n.name)
         ORDER BY l.id, n.name COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING id, created_at
    )
    INSERT INTO queen.log_due (partition_id, idle_since)
    SELECT a.id, a.created_at FROM added AS a;
END
$$;
COMMENT ON FUNCTION queen.log_provision(uuid[], text[], text[]) IS
    'Creates the queues that do not exist, with implicit defaults, and the partitions where partitions[i] is not NULL. Bad names are passed over. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED. May wait for another session that creates the same names';

CREATE FUNCTION queen.queue_options(q queen.queues) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_build_object(
        'leaseTime', q.lease_time,
        'retryLimit', q.retry_limit,
        'retryDelay', q.retry_delay,
        'priority', q.priority,
        'maxSize', q.max_queue_size,
        'ttl', q.ttl,
        'deadLetterQueue', q.dead_letter_queue,
        'dlqAfterMaxRetries', q.dlq_after_max_retries,
        'delayedProcessing', q.delayed_processing,
        'windowBuffer', q.window_buffer,
        'minPopWaitTime', q.min_pop_wait_time,
        'retentionEnabled', q.retention_enabled,
        'retentionSeconds', q.retention_seconds,
        'completedRetentionSeconds', q.completed_retention_seconds,
        'maxWaitTimeSeconds', q.max_wait_time_seconds,
        'encryptionEnabled', q.encryption_enabled,
        'dedupWindowSeconds', q.dedup_window_seconds);
END;
COMMENT ON FUNCTION queen.queue_options(queen.queues) IS
    'Configuration of a queue under its wire names';

CREATE FUNCTION queen.queue_option_defaults() RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_build_object(
        'leaseTime', 300,
        'retryLimit', 3,
        'retryDelay', 1000,
        'priority', 0,
        'maxSize', 0,
        'ttl', 3600,
        'deadLetterQueue', true,
        'dlqAfterMaxRetries', true,
        'delayedProcessing', 0,
        'windowBuffer', 0,
        'minPopWaitTime', 0,
        'retentionEnabled', false,
        'retentionSeconds', 0,
        'completedRetentionSeconds', 0,
        'maxWaitTimeSeconds', 0,
        'encryptionEnabled', false,
        'dedupWindowSeconds', 3600);
END;
COMMENT ON FUNCTION queen.queue_option_defaults() IS
    'Every option that configure knows, with the value that it has when nothing is said. Differs from the columns'' defaults in leaseTime: 300 seconds instead of 60';

CREATE FUNCTION queen.configure_error(field text, message text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', COLUMN = field,
        MESSAGE = format('%s %s', field, message);
END
$$;
COMMENT ON FUNCTION queen.configure_error(text, text) IS
    'Raises 22023 with the wire name of the bad field in the COLUMN field of the error';

CREATE FUNCTION queen.queue_option(option text, value jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    standard CONSTANT jsonb := queen.queue_option_defaults() -> option;
    lowest   numeric := 0;
    highest  numeric := 2147483647;
    n        numeric;
BEGIN
    IF jsonb_typeof(value) = 'null' THEN
        RETURN standard;
    END IF;
    IF jsonb_typeof(value) <> jsonb_typeof(standard) THEN
        PERFORM queen.configure_error(option, 'must be a ' || jsonb_typeof(standard));
    END IF;
    IF jsonb_typeof(value) = 'boolean' THEN
        RETURN value;
    END IF;
    n := value::numeric;
    CASE option
        WHEN 'leaseTime' THEN
            lowest := 1;
            highest := 86400;
        WHEN 'priority' THEN
            lowest := -2147483648;
        WHEN 'minPopWaitTime' THEN
            n := least(greatest(n, 0), 60000);
        WHEN 'dedupWindowSeconds' THEN
            n := greatest(n, 0);
        ELSE
            NULL;
    END CASE;
    IF n <> trunc(n) OR n NOT BETWEEN lowest AND highest THEN
        PERFORM queen.configure_error(option, format('must be a whole number between %s and %s',
                                                     lowest, highest));
    END IF;
    RETURN to_jsonb(n::int);
END
$$;
COMMENT ON FUNCTION queen.queue_option(text, jsonb) IS
    'The value that configure stores for an option: its default for a JSON null, else the value itself, clamped where the option says so. Raises 22023 for a wrong type or range';

CREATE FUNCTION queen.log_configure(tenant uuid, queue text, namespace text, task text,
                                    options jsonb, mode text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
DECLARE
    defaults CONSTANT jsonb := queen.queue_option_defaults();
    changes  jsonb;
    fresh    boolean;
    o        jsonb;
    q        queen.queues;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.configure_error(f.field, 'is missing or not a valid name')
       FROM (VALUES ('tenant', tenant::text), ('queue', queue),
                    ('namespace', coalesce(namespace, '')),
                    ('task', coalesce(task, ''))) AS f (field, name)
      WHERE queen.log_valid_name(f.name) IS NOT TRUE;
    IF mode NOT IN ('merge', 'replace') THEN
        PERFORM queen.configure_error('mode', 'must be merge or replace');
    END IF;
    IF jsonb_typeof(options) <> 'object' THEN
        PERFORM queen.configure_error('options', 'must be an object');
    END IF;
    SELECT coalesce(jsonb_object_agg(c.key, queen.queue_option(c.key, c.value)), '{}')
      INTO changes
      FROM jsonb_each(options) AS c
     WHERE defaults ? c.key;

    LOOP
        INSERT INTO queen.queues (tenant_id, name) VALUES (tenant, queue) ON CONFLICT DO NOTHING;
        fresh := FOUND;
        SELECT * INTO q FROM queen.queues AS r
         WHERE r.tenant_id = tenant AND r.name = queue
           FOR NO KEY UPDATE;
        EXIT WHEN FOUND; -- else another session deleted it in between
    END LOOP;

    fresh := fresh OR mode IS NOT DISTINCT FROM 'replace';
    o := CASE WHEN fresh THEN defaults ELSE queen.queue_options(q) END || changes;
    UPDATE queen.queues AS r
       SET namespace = coalesce(log_configure.namespace, CASE WHEN fresh THEN '' ELSE r.namespace END),
           task = coalesce(log_configure.task, CASE WHEN fresh THEN '' ELSE r.task END),
           lease_time = (o ->> 'leaseTime')::int,
           retry_limit = (o ->> 'retryLimit')::int,
           retry_delay = (o ->> 'retryDelay')::int,
           priority = (o ->> 'priority')::int,
           max_queue_size = (o ->> 'maxSize')::int,
           ttl = (o ->> 'ttl')::int,
           dead_letter_queue = (o ->> 'deadLetterQueue')::boolean,
           dlq_after_max_retries = (o ->> 'dlqAfterMaxRetries')::boolean,
           delayed_processing = (o ->> 'delayedProcessing')::int,
           window_buffer = (o ->> 'windowBuffer')::int,
           min_pop_wait_time = (o ->> 'minPopWaitTime')::int,
           retention_enabled = (o ->> 'retentionEnabled')::boolean,
           retention_seconds = (o ->> 'retentionSeconds')::int,
           completed_retention_seconds = (o ->> 'completedRetentionSeconds')::int,
           max_wait_time_seconds = (o ->> 'maxWaitTimeSeconds')::int,
           encryption_enabled = (o ->> 'encryptionEnabled')::boolean,
           dedup_window_seconds = (o ->> 'dedupWindowSeconds')::int
     WHERE r.id = q.id
    RETURNING * INTO q;
    PERFORM queen.stat_doubt(q.id);
    RETURN jsonb_build_object(
        'configured', true, 'queueId', q.id, 'partitionId', NULL, 'queue', q.name,
        'namespace', q.namespace, 'task', q.task, 'storage', 'segments',
        'options', queen.queue_options(q));
END
$$;
COMMENT ON FUNCTION queen.log_configure(uuid, text, text, text, jsonb, text) IS
    'Creates or changes a queue and returns the answer of POST /configure. options: wire names; unknown ones are ignored, a JSON null resets one. mode merge (also for NULL) keeps what is not named, replace resets it. namespace and task: NULL keeps them, or empties them on a new queue and with replace. Raises 22023 with the wire name in the COLUMN field, 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_delete_queue(tenant uuid, queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    PERFORM queen.log_guard();
    UPDATE queen.queues AS q
       SET deleted_at = clock_timestamp(), name = E'\x1F' || q.id
     WHERE q.tenant_id = tenant AND q.name = queue AND q.deleted_at IS NULL;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION queen.log_delete_queue(uuid, text) IS
    'Deletes a queue; true when it existed. Its name is free when this commits; the data is removed by queen.log_drain_step, subscriptions and watermarks with the queue row. Raises 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_drain_partition(partition uuid, max_rows int) RETURNS int
LANGUAGE plpgsql
AS $$
DECLARE
    removed int := 0;
    n       int;
BEGIN
    DELETE FROM queen.log_segments AS s
     WHERE s.partition_id = partition
       AND s.base_offset = ANY (ARRAY(SELECT b.base_offset FROM queen.log_segments AS b
                                       WHERE b.partition_id = partition
                                       ORDER BY b.base_offset LIMIT max_rows));
    GET DIAGNOSTICS n = ROW_COUNT;
    removed := removed + n;
    DELETE FROM queen.log_txns AS t
     WHERE t.partition_id = partition
       AND t.base_offset = ANY (ARRAY(SELECT b.base_offset FROM queen.log_txns AS b
                                       WHERE b.partition_id = partition
                                       ORDER BY b.base_offset LIMIT max_rows - removed));
    GET DIAGNOSTICS n = ROW_COUNT;
    removed := removed + n;
    DELETE FROM queen.log_dlq AS d
     WHERE d.id = ANY (ARRAY(SELECT b.id FROM queen.log_dlq AS b
                              WHERE b.partition_id = partition LIMIT max_rows - removed));
    GET DIAGNOSTICS n = ROW_COUNT;
    removed := removed + n;
    DELETE FROM queen.stream_state AS t
     WHERE t.ctid = ANY (ARRAY(SELECT b.ctid FROM queen.stream_state AS b
                                WHERE b.partition_id = partition LIMIT max_rows - removed));
    GET DIAGNOSTICS n = ROW_COUNT;
    removed := removed + n;
    -- Does not wait for an acknowledgement in flight: the next step finds its cursor free.
    DELETE FROM queen.log_consumers AS c
     WHERE c.partition_id = partition
       AND c.consumer_group = ANY (ARRAY(SELECT b.consumer_group FROM queen.log_consumers AS b
                                          WHERE b.partition_id = partition
                                          ORDER BY b.consumer_group COLLATE "C"
                                          LIMIT max_rows - removed
                                            FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS n = ROW_COUNT;
    removed := removed + n;
    IF removed < max_rows THEN
        DELETE FROM queen.log_partitions AS p
         WHERE p.id = partition
           AND NOT EXISTS (SELECT FROM queen.log_consumers AS c WHERE c.partition_id = partition);
        GET DIAGNOSTICS n = ROW_COUNT;
        removed := removed + n;
    END IF;
    RETURN removed;
END
$$;
COMMENT ON FUNCTION queen.log_drain_partition(uuid, int) IS
    'Removes at most max_rows rows of a partition, the partition''s own row last; returns how many. The caller holds the partition FOR UPDATE';

CREATE FUNCTION queen.log_drain_step(max_rows int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    target uuid;
    n      int;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    SELECT p.id INTO target
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
     WHERE q.deleted_at IS NOT NULL
     LIMIT 1
       FOR UPDATE OF p SKIP LOCKED;
    IF FOUND THEN
        RETURN queen.log_drain_partition(target, max_rows);
    END IF;

    SELECT q.id INTO target
      FROM queen.queues AS q
     WHERE q.deleted_at IS NOT NULL
       AND NOT EXISTS (SELECT FROM queen.log_partitions AS p WHERE p.queue_id = q.id)
     LIMIT 1
       FOR UPDATE SKIP LOCKED;
    -- Looks again: a partition may have come in before the lock was obtained.
    DELETE FROM queen.queues AS q
     WHERE q.id = target
       AND NOT EXISTS (SELECT FROM queen.log_partitions AS p WHERE p.queue_id = q.id);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
COMMENT ON FUNCTION queen.log_drain_step(int) IS
    'Removes at most max_rows rows of deleted queues, from one partition, and returns how many; 0 when nothing is left that no other session holds. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED';
