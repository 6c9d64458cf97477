-- Traces: events that applications record about a message, under names of their own.

CREATE FUNCTION queen.log_trace(tenant uuid, partition_id uuid, transaction_id text,
                                consumer_group text, event_type text, names text[], data text,
                                worker text) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    problem text := CASE
        WHEN num_nulls(tenant, partition_id, names, data) > 0
            THEN 'tenant, partition, names and data are required'
        WHEN transaction_id = '' OR queen.log_valid_name(transaction_id) IS NOT TRUE
            THEN 'invalid transaction id'
        WHEN consumer_group = '' OR queen.log_valid_name(consumer_group) IS NOT TRUE
            THEN 'invalid consumer group name'
        WHEN event_type = '' OR queen.log_valid_name(event_type) IS NOT TRUE
            THEN 'invalid event type'
        WHEN cardinality(names) > 100
            THEN 'a trace has at most 100 names'
        WHEN EXISTS (SELECT FROM unnest(names) AS n (name)
                      WHERE n.name = '' OR queen.log_valid_name(n.name) IS NOT TRUE)
            THEN 'invalid trace name'
        END;
    event   jsonb;
    trace   queen.message_traces;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = problem;
    END IF;
    BEGIN
        event := data;
    EXCEPTION WHEN data_exception THEN  -- valid JSON may hold what jsonb refuses
        RAISE EXCEPTION 'data cannot be stored: %', SQLERRM
            USING ERRCODE = 'invalid_parameter_value';
    END;
    INSERT INTO queen.message_traces AS t (tenant_id, partition_id, transaction_id, consumer_group,
                                           event_type, data, worker_id)
    VALUES (tenant, partition_id, transaction_id, consumer_group, event_type, event, worker)
    RETURNING t.* INTO trace;
    INSERT INTO queen.message_trace_names (trace_id, trace_name, tenant_id, created_at)
    SELECT DISTINCT trace.id, n.name, tenant, trace.created_at FROM unnest(names) AS n (name);
    RETURN trace.id;
END
$$;
COMMENT ON FUNCTION queen.log_trace(uuid, uuid, text, text, text, text[], text, text) IS
    'Records an event about a message, named by partition and transaction id (1 to 255 characters), which need not exist, and returns its id. names: up to 100, under which it can be found; data: any JSON that jsonb can hold; worker: who recorded it. Raises 22023 for bad arguments';

CREATE FUNCTION queen.trace_event(t queen.message_traces) RETURNS jsonb
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_build_object(
               'id', t.id, 'event_type', t.event_type, 'data', t.data,
               'consumer_group', t.consumer_group, 'worker_id', t.worker_id,
               'created_at', queen.wire_time(t.created_at),
               'trace_names', (SELECT coalesce(pg_catalog.jsonb_agg(
                                          n.trace_name ORDER BY n.trace_name COLLATE "C"), '[]')
                                 FROM queen.message_trace_names AS n
                                WHERE n.trace_id = t.id));
END;
COMMENT ON FUNCTION queen.trace_event(queen.message_traces) IS 'A trace as the listings show it';

CREATE FUNCTION queen.log_traces(tenant uuid, partition_id uuid, transaction_id text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object('traces', coalesce(
               jsonb_agg(queen.trace_event(t) ORDER BY t.created_at, t.id), '[]'))
      FROM (SELECT m.*
              FROM queen.message_traces AS m
             WHERE m.partition_id = log_traces.partition_id
               AND m.transaction_id = log_traces.transaction_id AND m.tenant_id = tenant
             ORDER BY m.created_at
             LIMIT 1000) AS t;
$$;
COMMENT ON FUNCTION queen.log_traces(uuid, uuid, text) IS
    'The first 1,000 traces of a message, oldest first: the answer of GET /traces/:partitionId/:transactionId';

CREATE FUNCTION queen.log_traces_by_name(tenant uuid, trace_name text, max_rows int, skip int)
RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT jsonb_build_object(
               'traces', coalesce(jsonb_agg(queen.trace_event(t) || jsonb_build_object(
                   'transaction_id', t.transaction_id, 'partition_id', t.partition_id,
                   'queue_name', q.name, 'partition_name', CASE WHEN q.id IS NOT NULL THEN p.name END,
                   'message_payload', NULL) ORDER BY t.created_at, t.id), '[]'),
               'total', (SELECT count(*)
                           FROM queen.message_trace_names AS n
                          WHERE n.tenant_id = tenant
                            AND n.trace_name = log_traces_by_name.trace_name),
               'pagination', jsonb_build_object('limit', max_rows, 'offset', skip))
      FROM (SELECT n.trace_id
              FROM queen.message_trace_names AS n
             WHERE n.tenant_id = tenant AND n.trace_name = log_traces_by_name.trace_name
             ORDER BY n.created_at, n.trace_id
             LIMIT max_rows OFFSET skip) AS n
      JOIN queen.message_traces AS t ON t.id = n.trace_id
      LEFT JOIN queen.log_partitions AS p ON p.id = t.partition_id
      LEFT JOIN queen.queues AS q
        ON q.id = p.queue_id AND q.tenant_id = tenant AND q.deleted_at IS NULL;
$$;
COMMENT ON FUNCTION queen.log_traces_by_name(uuid, text, int, int) IS
    'The traces under a name, oldest first, max_rows after the first skip: the answer of GET /traces/by-name/:name. Queue and partition are NULL when they do not exist, or not for this tenant';

CREATE FUNCTION queen.log_trace_names(tenant uuid, max_rows int, skip int) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    WITH named AS MATERIALIZED (
        SELECT n.trace_name, count(*) AS traces,
               count(DISTINCT (t.partition_id, t.transaction_id)) AS messages,
               max(n.created_at) AS last_seen
          FROM queen.message_trace_names AS n
          JOIN queen.message_traces AS t ON t.id = n.trace_id
         WHERE n.tenant_id = tenant
         GROUP BY n.trace_name
    )
    SELECT jsonb_build_object(
               'trace_names', (
                   SELECT coalesce(jsonb_agg(jsonb_build_object(
                              'trace_name', p.trace_name, 'trace_count', p.traces,
                              'message_count', p.messages,
                              'last_seen', queen.wire_time(p.last_seen))
                              ORDER BY p.last_seen DESC, p.trace_name COLLATE "C"), '[]')
                     FROM (SELECT *
                             FROM named
                            ORDER BY last_seen DESC, trace_name COLLATE "C"
                            LIMIT max_rows OFFSET skip) AS p),
               'total', (SELECT count(*) FROM named),
               'pagination', jsonb_build_object('limit', max_rows, 'offset', skip));
$$;
COMMENT ON FUNCTION queen.log_trace_names(uuid, int, int) IS
    'The names of a tenant''s traces, the latest used first, max_rows after the first skip: the answer of GET /traces/names. Reads all of the tenant''s traces';
