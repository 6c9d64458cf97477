-- Builds segments in SQL. The zstd frame holds one raw block, so that no compressor is needed.

CREATE FUNCTION pg_temp.little_endian(n bigint, bytes int) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(set_byte('\x00', 0, ((n >> (8 * i)) & 255)::int), '' ORDER BY i)
      FROM generate_series(0, bytes - 1) AS i;
$$;

CREATE FUNCTION pg_temp.short_text(t bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_temp.little_endian(length(t), 2) || t;
$$;

-- One message as it lies in a segment. The transaction id and the subject are bytes, because
-- tests want bad ones as well.
CREATE FUNCTION pg_temp.frame(transaction_id bytea, payload bytea, message_id uuid,
                              trace_id uuid DEFAULT NULL, producer_sub bytea DEFAULT NULL,
                              flags int DEFAULT 0) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_temp.little_endian(length(body), 4) || body
      FROM (SELECT set_byte('\x00', 0, flags | CASE WHEN trace_id IS NULL THEN 0 ELSE 1 END
                                             | CASE WHEN producer_sub IS NULL THEN 0 ELSE 2 END)
                   || uuid_send(message_id) || coalesce(uuid_send(trace_id), '')
                   || pg_temp.short_text(transaction_id)
                   || coalesce(pg_temp.short_text(producer_sub), '') || payload AS body) AS b;
$$;

CREATE FUNCTION pg_temp.segment(raw bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT '\x28b52ffda0'::bytea || pg_temp.little_endian(length(raw), 4)
           || pg_temp.little_endian(length(raw) << 3 | 1, 3) || raw;
$$;

-- The message id and the payload follow from the transaction id, so that expected output holds still.
CREATE FUNCTION pg_temp.segment(ids text[]) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_temp.segment(string_agg(
               pg_temp.frame(convert_to(id, 'UTF8'), convert_to(to_json(id)::text, 'UTF8'),
                             md5(id)::uuid), '' ORDER BY n))
      FROM unnest(ids) WITH ORDINALITY AS t (id, n);
$$;

CREATE FUNCTION pg_temp.hashes(ids text[]) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(queen.log_hash(id), '' ORDER BY n) FROM unnest(ids) WITH ORDINALITY AS t (id, n);
$$;

CREATE FUNCTION pg_temp.tenant() RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$ SELECT '00000000-0000-0000-0000-000000000001'::uuid $$;

-- Creates the queue and the partition when they are missing, and pushes one segment.
CREATE FUNCTION pg_temp.push(queue text, partition text, VARIADIC ids text[])
RETURNS SETOF queen.push_verdict
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queen.log_provision(ARRAY[pg_temp.tenant()], ARRAY[queue], ARRAY[partition]);
    RETURN QUERY
    SELECT * FROM queen.log_push(ARRAY[pg_temp.tenant()], ARRAY[queue], ARRAY[partition],
                                 ARRAY[cardinality(ids)], ARRAY[pg_temp.hashes(ids)],
                                 ARRAY[pg_temp.segment(ids)], true);
END
$$;

CREATE FUNCTION pg_temp.partition_id(queue text, partition text) RETURNS uuid
LANGUAGE sql STABLE AS $$
    SELECT p.id FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id
     WHERE q.tenant_id = pg_temp.tenant() AND q.name = queue AND p.name = partition;
$$;
