-- What one cycle of retention and sidecar purge costs with 10 partitions due out of a thousand, of
-- a hundred thousand and of a million.
--
--     psql -X -f bench/maintenance_cost.sql
--
-- as a superuser, on a server that has the extension's files. Makes the database queen_bench, which
-- takes some 600 MB and a few minutes, and drops it. "blocks" are the buffers that the steps looked at,
-- hit or read.
\set QUIET on
\set ON_ERROR_STOP on
\pset footer off
CREATE DATABASE queen_bench ENCODING 'UTF8' TEMPLATE template0;
\connect queen_bench
SET client_min_messages = warning;
SET synchronous_commit = off;
CREATE EXTENSION queen;
CREATE TABLE results (n serial, partitions int, due int, blocks bigint, ms numeric);

-- Without the checks of foreign keys, which would take longer than all the rest.
CREATE FUNCTION fill(first int, last int) RETURNS void LANGUAGE sql
SET session_replication_role = 'replica' AS $$
    INSERT INTO queen.log_partitions (queue_id, name, last_offset, segments, bytes)
    SELECT q.id, 'p' || i, 0, 1, 1 FROM queen.queues AS q, generate_series(first, last) AS i;
    INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
    SELECT p.id, 0, 0, now(), '\x01' FROM queen.log_partitions AS p
     WHERE NOT EXISTS (SELECT FROM queen.log_due AS d WHERE d.partition_id = p.id);
    INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
    SELECT p.id, 0, 0, now(), uuid_send(gen_random_uuid()) FROM queen.log_partitions AS p
     WHERE NOT EXISTS (SELECT FROM queen.log_due AS d WHERE d.partition_id = p.id);
    INSERT INTO queen.log_due (partition_id, retention_at, purge_at)
    SELECT p.id, now() + interval '7 days', now() + interval '7 days' FROM queen.log_partitions AS p
     WHERE NOT EXISTS (SELECT FROM queen.log_due AS d WHERE d.partition_id = p.id);
$$;

-- Ten partitions of those that were never due become so for both.
CREATE FUNCTION make_due(how_many int) RETURNS void LANGUAGE sql AS $$
    WITH chosen AS (
        UPDATE queen.log_due SET retention_at = now(), purge_at = now()
         WHERE partition_id IN (SELECT partition_id FROM queen.log_due
                                 WHERE retention_at > now() ORDER BY partition_id LIMIT how_many)
        RETURNING partition_id
    ), aged AS (
        UPDATE queen.log_segments SET created_at = created_at - interval '8 days'
         WHERE partition_id IN (SELECT partition_id FROM chosen)
    )
    UPDATE queen.log_txns SET created_at = created_at - interval '8 days'
     WHERE partition_id IN (SELECT partition_id FROM chosen);
$$;

-- A cycle ends with a step that finds nothing.
CREATE PROCEDURE cycle(due int) LANGUAGE plpgsql AS $$
DECLARE
    step   text;
    plan   json;
    blocks bigint := 0;
    ms     numeric := 0;
BEGIN
    PERFORM make_due(due);
    COMMIT;
    FOREACH step IN ARRAY '{retention_step,sidecar_purge_step}'::text[] LOOP
        FOR i IN 0 .. due LOOP
            EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT queen.%I(1000)', step)
               INTO plan;
            COMMIT;
            blocks := blocks + (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint
                             + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
            ms := ms + (plan -> 0 ->> 'Execution Time')::numeric;
        END LOOP;
    END LOOP;
    INSERT INTO results (partitions, due, blocks, ms)
    SELECT count(*), cycle.due, blocks, round(ms, 1) FROM queen.log_partitions;
    IF EXISTS (SELECT FROM queen.log_due WHERE retention_at <= now() OR purge_at <= now()) THEN
        RAISE 'something is still due';
    END IF;
END
$$;

-- Both rules expire after seven days.
INSERT INTO queen.queues (name, retention_enabled, retention_seconds, dedup_window_seconds)
VALUES ('bench', true, 7 * 86400, 7 * 86400);
DO 'BEGIN PERFORM fill(1, 1000); END';
VACUUM ANALYZE;
CALL cycle(10);
CALL cycle(10);
CALL cycle(0);
DO 'BEGIN PERFORM fill(1001, 100000); END';
VACUUM ANALYZE;
CALL cycle(10);
CALL cycle(10);
CALL cycle(0);
DO 'BEGIN PERFORM fill(100001, 1000000); END';
VACUUM ANALYZE;
CALL cycle(10);
CALL cycle(10);
CALL cycle(0);

SELECT partitions, due, blocks, ms FROM results ORDER BY n;
\connect template1
DROP DATABASE queen_bench;
