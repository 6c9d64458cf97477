-- Messages, listed and one by one.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE FUNCTION pg_temp.list(queue text, part text DEFAULT NULL, status text DEFAULT NULL, max_rows int DEFAULT 100, skip int DEFAULT 0,
                             since timestamptz DEFAULT '-infinity', until timestamptz DEFAULT 'infinity')
RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s/%s', l.meta ->> 'transactionId', l.meta ->> 'status'), ' ')
      FROM queen.log_messages(pg_temp.tenant(), queue, part, NULL, NULL, status, since, until, max_rows, skip) AS l;
$$;
DO $$
BEGIN
    PERFORM pg_temp.push('q', 'a', 'a1', 'a2', 'a3'), pg_temp.push('q', 'b', 'b1'), pg_temp.push('q', 'a', 'a4'), pg_temp.push('q', 'b', 'b2', 'b3');
    PERFORM pg_temp.push('other', 'a', 'o1');
END
$$;

-- Newest first over all partitions, in pages.
SELECT pg_temp.list('q');
SELECT pg_temp.list('q', 'a');
SELECT pg_temp.list('q', NULL, NULL, 3), pg_temp.list('q', NULL, NULL, 3, 3), pg_temp.list('q', NULL, NULL, 3, 6);
SELECT pg_temp.list('q', NULL, NULL, 0), pg_temp.list('q', NULL, NULL, 3, 7), pg_temp.list('nowhere');
SELECT pg_temp.list(NULL, NULL, NULL, 2);
SELECT pg_temp.list('q', since => s.created_at), pg_temp.list('q', until => s.created_at)
  FROM queen.log_segments AS s WHERE s.partition_id = pg_temp.partition_id('q', 'b') AND s.base_offset = 0;
SELECT * FROM queen.log_messages(pg_temp.tenant(), 'q', NULL, NULL, NULL, NULL, NULL, NULL, -1, 0);
SELECT count(*) FROM queen.log_messages('00000000-0000-0000-0000-000000000002', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 100, 0);

-- V-84: pending, processing, completed, dead letter.
DO $$ BEGIN PERFORM pg_temp.pop('q', 'a'); END $$;
SELECT pg_temp.list('q', 'a');
DO $$ BEGIN PERFORM pg_temp.ack('q', 'a', 1, '{a1}', '{completed}'); END $$;
SELECT pg_temp.list('q', 'a');
DO $$ BEGIN PERFORM pg_temp.ack('q', 'a', 1, '{a2}', '{dlq}'); END $$;
SELECT pg_temp.list('q', 'a');
SELECT s, pg_temp.list('q', NULL, s) FROM unnest('{pending,processing,completed,dead_letter}'::text[]) AS s;

-- Named groups decide when there are any.
DO $$ BEGIN PERFORM pg_temp.pop('q', 'b', grp => 'g'), pg_temp.ack('q', 'b', 1, '{b2}', '{completed}', grp => 'g'); END $$;
SELECT pg_temp.list('q', 'b');
DO $$ BEGIN PERFORM pg_temp.pop('q', 'b', grp => 'h'); END $$;
SELECT pg_temp.list('q', 'b');
SELECT l.meta -> 'busStatus' AS bus, l.meta ->> 'queueStatus' AS queue, l.mode
  FROM queen.log_messages(pg_temp.tenant(), 'q', 'b', NULL, NULL, NULL, NULL, NULL, 100, 0) AS l;

-- One by its id: in the log, without its sidecar, and as a dead letter that has outlived it.
CREATE FUNCTION pg_temp.one(part text, id text) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s %s %s %s', m.meta ->> 'transactionId', m.meta ->> 'status', m.meta ->> 'errorMessage', convert_from(m.payload, 'UTF8'))
      FROM queen.log_message(pg_temp.tenant(), pg_temp.partition_id('q', part), id) AS m;
$$;
SELECT pg_temp.one('a', 'a1'), pg_temp.one('a', 'a2'), pg_temp.one('b', 'b3'), pg_temp.one('a', 'b3');
SELECT count(*) FROM queen.log_message('00000000-0000-0000-0000-000000000002', pg_temp.partition_id('q', 'a'), 'a1');
UPDATE queen.log_partitions SET txns_start = 3 WHERE id = pg_temp.partition_id('q', 'a');
SELECT pg_temp.one('a', 'a1'), pg_temp.one('a', 'a4'), pg_temp.one('a', 'b3');
UPDATE queen.log_partitions SET log_start = 3 WHERE id = pg_temp.partition_id('q', 'a');
DELETE FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('q', 'a') AND base_offset = 0;
SELECT pg_temp.one('a', 'a1'), pg_temp.one('a', 'a2'), pg_temp.list('q', 'a');

-- A corrupt segment shows nothing and hurts nobody.
UPDATE queen.log_segments SET blob = '\x00' WHERE partition_id = pg_temp.partition_id('q', 'b') AND base_offset = 1;
SELECT pg_temp.list('q', 'b'), pg_temp.one('b', 'b2'), pg_temp.one('b', 'b1');

-- A page of one message reads a few rows, however long the log is.
CREATE FUNCTION pg_temp.rows_read() RETURNS bigint LANGUAGE sql AS $$
    SELECT pg_stat_get_xact_tuples_fetched('queen.log_segments'::regclass) + pg_stat_get_xact_tuples_returned('queen.log_segments'::regclass);
$$;
INSERT INTO queen.log_partitions (queue_id, name, last_offset, txns_start, last_created_at)
SELECT id, 'long', 99999, 100000, now() FROM queen.queues WHERE name = 'q';
INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
SELECT pg_temp.partition_id('q', 'long'), n, n, now() - (99999 - n) * interval '1 second', pg_temp.segment(ARRAY['l'])
  FROM generate_series(0, 99999) AS n;
BEGIN;
SELECT pg_temp.list('q', 'long', max_rows => 1, since => now() - interval '1 hour');
SELECT pg_temp.list('q', 'long', max_rows => 1, until => now() - interval '20 hours') AS old;
SELECT pg_temp.rows_read() < 500 AS few;
COMMIT;
