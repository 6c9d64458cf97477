-- What a cycle of maintenance reads: the partitions that are due, however many others there are.
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
SELECT pg_temp.configure('cost', '{"retentionEnabled": true, "retentionSeconds": 86400}');
-- One segment each, all of them in the sidecar.
CREATE FUNCTION pg_temp.fill(first int, last int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO queen.log_partitions (queue_id, name, last_offset, segments, bytes)
    SELECT id, 'p' || i, 0, 1, 1 FROM queen.queues, generate_series(first, last) AS i;
    INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
    SELECT p.id, 0, 0, now(), '\x01' FROM queen.log_partitions AS p LEFT JOIN queen.log_due AS d ON d.partition_id = p.id WHERE d.partition_id IS NULL;
    INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
    SELECT p.id, 0, 0, now(), queen.log_hash('m') FROM queen.log_partitions AS p LEFT JOIN queen.log_due AS d ON d.partition_id = p.id WHERE d.partition_id IS NULL;
    INSERT INTO queen.log_due (partition_id, retention_at, purge_at)
    SELECT p.id, now() + interval '1 day', now() + interval '1 hour' FROM queen.log_partitions AS p LEFT JOIN queen.log_due AS d ON d.partition_id = p.id WHERE d.partition_id IS NULL;
$$;
CREATE VIEW pg_temp.reads AS
    SELECT relname, seq_scan, idx_tup_fetch, n_tup_upd, n_tup_del FROM pg_stat_xact_user_tables
     WHERE schemaname = 'queen' AND relname IN ('queues', 'log_partitions', 'log_segments', 'log_txns', 'log_due')
     ORDER BY relname COLLATE "C";
-- Ten of them are due for retention, ten others for the purge, ten for the clean-up.
CREATE FUNCTION pg_temp.ten_due(first int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    partition uuid;
BEGIN
    FOR i IN first .. first + 9 LOOP
        UPDATE queen.log_segments SET created_at = created_at - interval '25 hours' WHERE partition_id = pg_temp.partition_id('cost', 'p' || i);
        UPDATE queen.log_due SET retention_at = retention_at - interval '25 hours' WHERE partition_id = pg_temp.partition_id('cost', 'p' || i);
    END LOOP;
    FOR i IN first + 10 .. first + 19 LOOP
        UPDATE queen.log_txns SET created_at = created_at - interval '2 hours' WHERE partition_id = pg_temp.partition_id('cost', 'p' || i);
        UPDATE queen.log_due SET purge_at = purge_at - interval '2 hours' WHERE partition_id = pg_temp.partition_id('cost', 'p' || i);
    END LOOP;
    FOR i IN first + 20 .. first + 29 LOOP
        partition := pg_temp.partition_id('cost', 'p' || i);
        PERFORM pg_temp.retain_from('cost', 'p' || i, 1);
        UPDATE queen.log_partitions SET created_at = created_at - interval '31 days', last_write_at = last_write_at - interval '31 days' WHERE id = partition;
        UPDATE queen.log_due SET retention_at = NULL, idle_since = now() - interval '31 days' WHERE partition_id = partition;
    END LOOP;
END
$$;
CREATE FUNCTION pg_temp.cycle() RETURNS TABLE (retained bigint, purged bigint, cleaned bigint) LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM pg_temp.retain()), (SELECT count(*) FROM pg_temp.purge()), pg_temp.clean_up();
$$;

SELECT pg_temp.fill(1, 100);
SELECT pg_temp.ten_due(1);
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT * FROM pg_temp.cycle();
SELECT * FROM pg_temp.reads;
COMMIT;
-- Nothing is due.
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT * FROM pg_temp.cycle();
SELECT * FROM pg_temp.reads;
COMMIT;

-- A hundred partitions known to the planner, ten thousand there.
ANALYZE queen.queues, queen.log_partitions, queen.log_segments, queen.log_txns, queen.log_due;
SELECT pg_temp.fill(101, 10000);
SELECT pg_temp.ten_due(5001);
DISCARD PLANS;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT * FROM pg_temp.cycle();
SELECT * FROM pg_temp.reads;
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT * FROM pg_temp.cycle();
SELECT * FROM pg_temp.reads;
COMMIT;

-- All of them known.
ANALYZE queen.queues, queen.log_partitions, queen.log_segments, queen.log_txns, queen.log_due;
SELECT pg_temp.ten_due(7001);
DISCARD PLANS;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT * FROM pg_temp.cycle();
SELECT * FROM pg_temp.reads;
COMMIT;

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;
