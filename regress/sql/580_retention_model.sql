-- Retention and purge against a model: random logs, cursors and options. What a step may delete is
-- written down anew here, message by message.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set maintain :srcdir '/lib/maintain.sql'
\set ECHO none
\i :segments
\i :consume
\i :maintain
\set ECHO all
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.any(int) RETURNS int LANGUAGE sql VOLATILE AS $$ SELECT floor(random() * $1)::int $$;

-- A log of up to 40 segments of one to three messages, each up to 200 seconds older than the next.
-- Stamps are whole hundreds of seconds ago and ages lie in the middle between, so that the time that
-- a round takes decides nothing.
CREATE FUNCTION pg_temp.write_log(partition uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    base  bigint := 0;
    count int;
    stamp timestamptz := now() - interval '8000 seconds';
BEGIN
    FOR i IN 1 .. pg_temp.any(40) LOOP
        count := 1 + pg_temp.any(3);
        stamp := stamp + pg_temp.any(3) * interval '100 seconds' + interval '1 microsecond';
        INSERT INTO queen.log_segments VALUES (partition, base, base + count - 1, stamp, '\x01');
        INSERT INTO queen.log_txns VALUES (partition, base, base + count - 1, stamp, '\x');
        base := base + count;
    END LOOP;
    UPDATE queen.log_partitions
       SET last_offset = base - 1, last_created_at = stamp,
           segments = (SELECT count(*) FROM queen.log_segments WHERE partition_id = partition),
           bytes = (SELECT count(*) FROM queen.log_segments WHERE partition_id = partition)
     WHERE id = partition;
    UPDATE queen.log_due SET retention_at = '-infinity', purge_at = '-infinity' WHERE partition_id = partition;
END
$$;

-- The segments that must go: the longest run from the front of which each is deleted by some rule.
CREATE FUNCTION pg_temp.doomed(partition uuid) RETURNS TABLE (base bigint) LANGUAGE sql AS $$
    SELECT d.base_offset
      FROM (SELECT s.base_offset,
                   bool_and(coalesce(q.retention_enabled AND q.retention_seconds > 0
                                     AND now() - s.created_at > q.retention_seconds * interval '1 second', false)
                            OR coalesce(q.max_wait_time_seconds > 0
                                        AND now() - s.created_at > q.max_wait_time_seconds * interval '1 second', false)
                            OR coalesce(q.retention_enabled AND q.completed_retention_seconds > 0
                                        AND now() - s.created_at > q.completed_retention_seconds * interval '1 second'
                                        AND EXISTS (SELECT FROM queen.log_consumers WHERE partition_id = partition)
                                        AND NOT EXISTS (SELECT FROM queen.log_consumers AS c
                                                         WHERE c.partition_id = partition AND c.committed < s.end_offset), false))
                       OVER (ORDER BY s.base_offset) AS goes
              FROM queen.log_segments AS s
              JOIN queen.log_partitions AS p ON p.id = s.partition_id
              JOIN queen.queues AS q ON q.id = p.queue_id
             WHERE s.partition_id = partition) AS d
     WHERE d.goes;
$$;

CREATE FUNCTION pg_temp.outdated(partition uuid) RETURNS TABLE (base bigint) LANGUAGE sql AS $$
    SELECT t.base_offset
      FROM queen.log_txns AS t
      JOIN queen.log_partitions AS p ON p.id = t.partition_id
      JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE t.partition_id = partition
       AND now() - t.created_at > greatest(q.dedup_window_seconds, q.completed_retention_seconds, 900) * interval '1 second';
$$;

CREATE TEMP TABLE rounds (segments int, retained int, purged int, wrong boolean);
CREATE FUNCTION pg_temp.play() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    partition uuid;
    stays     bigint[];
    kept      bigint[];
    had       int;
BEGIN
    PERFORM queen.log_provision(ARRAY[pg_temp.tenant()], '{model}', '{p}');
    partition := pg_temp.partition_id('model', 'p');
    UPDATE queen.queues
       SET retention_enabled = random() < 0.8,
           retention_seconds = pg_temp.any(3) / 2 * (3050 + 100 * pg_temp.any(50)),
           completed_retention_seconds = least(pg_temp.any(3), 1) * (3050 + 100 * pg_temp.any(50)),
           max_wait_time_seconds = pg_temp.any(3) / 2 * (4050 + 100 * pg_temp.any(40)),
           dedup_window_seconds = 950 + 100 * pg_temp.any(70);
    PERFORM pg_temp.write_log(partition);
    INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
    SELECT partition, 'g' || i, -1 + pg_temp.any(50) FROM generate_series(1, pg_temp.any(3)) AS i;

    stays := ARRAY(SELECT base_offset FROM queen.log_segments WHERE base_offset NOT IN (SELECT * FROM pg_temp.doomed(partition)) ORDER BY 1);
    kept := ARRAY(SELECT base_offset FROM queen.log_txns WHERE base_offset NOT IN (SELECT * FROM pg_temp.outdated(partition)) ORDER BY 1);
    SELECT count(*) INTO had FROM queen.log_segments;
    PERFORM pg_temp.retain(1 + pg_temp.any(20)), pg_temp.purge(1 + pg_temp.any(20));
    INSERT INTO rounds
    SELECT had, had - cardinality(stays), had - cardinality(kept),
           stays <> ARRAY(SELECT base_offset FROM queen.log_segments ORDER BY 1)
           OR kept <> ARRAY(SELECT base_offset FROM queen.log_txns ORDER BY 1)
           OR NOT (SELECT sound FROM pg_temp.log('model'))
           OR (SELECT log_start FROM pg_temp.log('model')) <> (SELECT coalesce(sum(messages_deleted), 0) FROM queen.retention_history);
    DELETE FROM queen.queues;
    DELETE FROM queen.log_txns;
    DELETE FROM queen.retention_history;
END
$$;

SET client_min_messages = warning;
SELECT setseed(0.5);
DO $$
BEGIN
    FOR i IN 1 .. 120 LOOP
        PERFORM pg_temp.play();
        COMMIT;
    END LOOP;
END
$$;
SELECT count(*) FILTER (WHERE wrong) AS wrong, count(*) FILTER (WHERE retained BETWEEN 1 AND segments - 1) > 20 AS partly,
       count(*) FILTER (WHERE retained = segments AND segments > 0) > 5 AS wholly,
       count(*) FILTER (WHERE retained = 0) > 5 AS not_at_all, count(*) FILTER (WHERE purged BETWEEN 1 AND segments - 1) > 20 AS purged
  FROM rounds;
