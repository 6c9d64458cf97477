-- The list of dead letters.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE FUNCTION pg_temp.list(queue text, grp text, max_rows int DEFAULT 100, skip int DEFAULT 0)
RETURNS TABLE (transaction_id text, queue_name text, partition text, grp text, error text, retries int, flags int, payload text)
LANGUAGE sql AS $$
    SELECT d.transaction_id, d.queue, d.partition, d.consumer_group, d.error, d.retry_count, d.flags, convert_from(d.payload, 'UTF8')
      FROM queen.log_dlq(pg_temp.tenant(), queue, NULL, grp, NULL, NULL, max_rows, skip) AS d;
$$;
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY '{q,r}'::text[] LOOP
        FOR i IN 1..3 LOOP
            PERFORM pg_temp.push(name, 'p' || i % 2, name || i);
            PERFORM pg_temp.pop(name, 'p' || i % 2), pg_temp.ack(name, 'p' || i % 2, 1, ARRAY[name || i], '{dlq}', errors => ARRAY['bad ' || i]);
        END LOOP;
        PERFORM pg_temp.pop(name, 'p0', grp => 'g'), pg_temp.ack(name, 'p0', 1, ARRAY[name || 2], '{dlq}', grp => 'g');
    END LOOP;
END
$$;
SELECT * FROM pg_temp.list(NULL, NULL);
SELECT * FROM pg_temp.list('q', NULL);
SELECT * FROM pg_temp.list(NULL, 'g');
SELECT * FROM pg_temp.list('q', '__QUEUE_MODE__', 2);
SELECT * FROM pg_temp.list('q', '__QUEUE_MODE__', 2, 2);
SELECT * FROM pg_temp.list('q', NULL, 0);
SELECT * FROM pg_temp.list('nowhere', NULL);
SELECT d.id = l.id AS id, d.failed_at = l.failed_at AS failed_at, l.partition_id = pg_temp.partition_id('r', 'p0') AS partition
  FROM queen.log_dlq AS d, queen.log_dlq(pg_temp.tenant(), 'r', NULL, 'g', NULL, NULL, 1, 0) AS l WHERE d.id = l.id;

-- Another tenant sees none of them, and nobody those of a deleted queue.
SELECT * FROM queen.log_dlq('00000000-0000-0000-0000-000000000002', NULL, NULL, NULL, NULL, NULL, 10, 0);
SELECT queen.log_delete_queue(pg_temp.tenant(), 'q');
SELECT DISTINCT queue_name FROM pg_temp.list(NULL, NULL);
\set VERBOSITY sqlstate
SELECT * FROM pg_temp.list('q', NULL, -1);
SELECT * FROM pg_temp.list('q', NULL, 1, NULL);

-- By partition and time; purged in steps; and what a reader of one letter gets.
SELECT transaction_id FROM queen.log_dlq(pg_temp.tenant(), 'r', 'p1', NULL, NULL, NULL, 10, 0);
SELECT count(*) FROM queen.log_dlq(pg_temp.tenant(), 'r', NULL, NULL, now() + interval '1 hour', NULL, 10, 0);
SELECT count(*) FROM queen.log_dlq(pg_temp.tenant(), 'r', NULL, NULL, NULL, now() - interval '1 hour', 10, 0);
SELECT l.transaction_id, l.consumer_group FROM queen.log_dlq_letter(pg_temp.tenant(), NULL, pg_temp.partition_id('r', 'p0'), 'r2') AS l;
SELECT count(*) FROM queen.log_dlq_letter('00000000-0000-0000-0000-000000000002', NULL, pg_temp.partition_id('r', 'p0'), 'r2');
SELECT queen.log_dlq_delete('00000000-0000-0000-0000-000000000002', pg_temp.partition_id('r', 'p0'), 'r2');
SELECT queen.log_dlq_delete(pg_temp.tenant(), pg_temp.partition_id('r', 'p0'), 'r2');
SELECT queen.log_dlq_purge('00000000-0000-0000-0000-000000000002', 'r', NULL, 10);
SELECT queen.log_dlq_purge(pg_temp.tenant(), 'r', 'g', 10);
SELECT queen.log_dlq_purge(pg_temp.tenant(), 'r', NULL, 1), queen.log_dlq_purge(pg_temp.tenant(), 'r', NULL, 10);
SELECT queen.log_dlq_purge(pg_temp.tenant(), 'r', NULL, 0);
