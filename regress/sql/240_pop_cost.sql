-- What pop and ack read: V-95, rows by primary key in proportion to what is delivered, however much
-- there is, whatever the planner knows about the tables.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
-- Without a work list.
SET queen.use_worklists = off;
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{cost}', '{deep}');
-- The test's own look-up of a partition by name is not what is measured.
SELECT set_config('test.deep', pg_temp.partition_id('cost', 'deep')::text, false) IS NOT NULL;
CREATE OR REPLACE FUNCTION pg_temp.partition_id(queue text, partition text) RETURNS uuid
LANGUAGE sql STABLE AS $$ SELECT current_setting('test.deep')::uuid $$;
-- Segments of two: many in one partition, one in each of the others. A group stands in the middle
-- of the deep partition; the others were written long ago, and there is a watermark.
CREATE FUNCTION pg_temp.fill(width int, depth int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO queen.log_partitions (queue_id, name, last_offset, last_write_at)
    SELECT q.id, 'p' || i, 1, clock_timestamp() - interval '1 day' FROM queen.queues AS q, generate_series(1, width) AS i
        ON CONFLICT DO NOTHING;
    UPDATE queen.log_partitions SET last_offset = 2 * depth - 1 WHERE name = 'deep';
    INSERT INTO queen.log_segments
    SELECT p.id, 2 * i, 2 * i + 1, now(), pg_temp.segment(ARRAY['a' || i, 'b' || i])
      FROM queen.log_partitions AS p, generate_series(0, depth - 1) AS i
     WHERE p.name = 'deep' OR i = 0
        ON CONFLICT DO NOTHING;
    INSERT INTO queen.log_txns
    SELECT s.partition_id, s.base_offset, s.end_offset, s.created_at, queen.log_segment_hashes(s.blob)
      FROM queen.log_segments AS s
        ON CONFLICT DO NOTHING;
    INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
    SELECT p.id, 'g', CASE WHEN p.name = 'deep' THEN 10 ELSE 1 END FROM queen.log_partitions AS p
        ON CONFLICT DO NOTHING;
$$;
SELECT status FROM pg_temp.pop('cost');
UPDATE queen.consumer_watermarks SET consumer_group = 'g', last_empty_scan_at = now();
UPDATE queen.consumer_groups_metadata SET consumer_group = 'g';
DELETE FROM queen.log_consumers;
-- The work: pops by name and by search, acks of a batch, of a part of it, and of what was passed
-- before, and a first contact that looks for a time.
CREATE VIEW pg_temp.reads AS
    SELECT relname, seq_scan, idx_tup_fetch < 30 AS few FROM pg_stat_xact_user_tables
     WHERE schemaname = 'queen' AND relname IN ('log_partitions', 'log_segments', 'log_txns', 'log_consumers')
     ORDER BY relname COLLATE "C";

-- Few rows, and nothing known about them.
SELECT pg_temp.fill(0, 20);
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT string_agg(ids, ' ') AS by_name FROM pg_temp.pop('cost', 'deep', 'g', batch => 4);
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, released FROM pg_temp.ack('cost', 'deep', 1, '{a6,b6}', grp => 'g');
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, noop FROM pg_temp.ack('cost', 'deep', 1, '{a3}', grp => 'g');
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, released FROM pg_temp.ack('cost', 'deep', 1, '{a7,b7}', '{completed,retry}', grp => 'g');
SELECT * FROM pg_temp.reads;
ROLLBACK;
UPDATE queen.log_consumers SET committed = 10, worker_id = NULL WHERE partition_id = pg_temp.partition_id('cost', 'deep');
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT string_agg(ids, ' ') AS wildcard FROM pg_temp.pop('cost', NULL, 'g', batch => 4, auto => true);
SELECT * FROM pg_temp.reads;
ROLLBACK;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT ids AS first_contact FROM pg_temp.pop('cost', 'deep', 'new', since => now() + interval '1 hour');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- Few rows known to the planner, many there.
ANALYZE queen.queues, queen.log_partitions, queen.log_segments, queen.log_txns, queen.log_consumers;
SELECT pg_temp.fill(1000, 2000);
DISCARD PLANS;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT string_agg(ids, ' ') AS by_name FROM pg_temp.pop('cost', 'deep', 'g', batch => 4);
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, released FROM pg_temp.ack('cost', 'deep', 1, '{a6,b6}', grp => 'g');
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, noop FROM pg_temp.ack('cost', 'deep', 1, '{a3}', grp => 'g');
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, released FROM pg_temp.ack('cost', 'deep', 1, '{a7,b7}', '{completed,retry}', grp => 'g');
SELECT * FROM pg_temp.reads;
ROLLBACK;
UPDATE queen.log_consumers SET committed = 10, worker_id = NULL WHERE partition_id = pg_temp.partition_id('cost', 'deep');
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT string_agg(ids, ' ') AS wildcard FROM pg_temp.pop('cost', NULL, 'g', batch => 4, auto => true);
SELECT * FROM pg_temp.reads;
ROLLBACK;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT ids AS first_contact FROM pg_temp.pop('cost', 'deep', 'new', since => now() + interval '1 hour');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- All of them known.
ANALYZE queen.queues, queen.log_partitions, queen.log_segments, queen.log_txns, queen.log_consumers;
DISCARD PLANS;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT string_agg(ids, ' ') AS by_name FROM pg_temp.pop('cost', 'deep', 'g', batch => 4);
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, released FROM pg_temp.ack('cost', 'deep', 1, '{a6,b6}', grp => 'g');
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, noop FROM pg_temp.ack('cost', 'deep', 1, '{a3}', grp => 'g');
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT success, released FROM pg_temp.ack('cost', 'deep', 1, '{a7,b7}', '{completed,retry}', grp => 'g');
SELECT * FROM pg_temp.reads;
ROLLBACK;
UPDATE queen.log_consumers SET committed = 10, worker_id = NULL WHERE partition_id = pg_temp.partition_id('cost', 'deep');
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT string_agg(ids, ' ') AS wildcard FROM pg_temp.pop('cost', NULL, 'g', batch => 4, auto => true);
SELECT * FROM pg_temp.reads;
ROLLBACK;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT ids AS first_contact FROM pg_temp.pop('cost', 'deep', 'new', since => now() + interval '1 hour');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- With a thousand partitions pending the search stops when it has enough to choose from.
SELECT count(*) FROM pg_temp.pop('cost', NULL, 'wide', batch => 1);
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT count(*) FROM pg_temp.pop('cost', NULL, 'wide', batch => 1);
SELECT relname, seq_scan, idx_tup_fetch < 150 AS bounded FROM pg_stat_xact_user_tables
 WHERE schemaname = 'queen' AND relname IN ('log_partitions', 'log_segments', 'log_consumers')
 ORDER BY relname COLLATE "C";
ROLLBACK;
