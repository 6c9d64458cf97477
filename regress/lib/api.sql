-- For tests of the API for applications. Needs segments.sql. Whoever loads this starts with an
-- empty log.
SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;

-- What a command fails with.
CREATE FUNCTION pg_temp.failure(command text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    RETURN format('%s %s', SQLSTATE, SQLERRM);
END
$$;

-- The log as it lies in the tables, one row per segment.
CREATE FUNCTION pg_temp.log(of_queue text)
RETURNS TABLE (partition text, base_offset bigint, end_offset bigint, fault text,
               sidecar boolean, ids text)
LANGUAGE sql AS $$
    SELECT p.name, s.base_offset, s.end_offset,
           queen.log_segment_error(s.blob, (s.end_offset - s.base_offset + 1)::int),
           t.end_offset = s.end_offset AND t.created_at = s.created_at
               AND t.hashes = queen.log_segment_hashes(s.blob),
           (SELECT string_agg((queen.log_frame(s.blob, f)).transaction_id, ' ' ORDER BY f)
              FROM generate_series(0, least(s.end_offset - s.base_offset, 9)::int) AS f)
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
      JOIN queen.log_segments AS s ON s.partition_id = p.id
      LEFT JOIN queen.log_txns AS t
        ON t.partition_id = s.partition_id AND t.base_offset = s.base_offset
     WHERE q.tenant_id = pg_temp.tenant() AND q.name = of_queue
     ORDER BY p.name COLLATE "C", s.base_offset;
$$;
