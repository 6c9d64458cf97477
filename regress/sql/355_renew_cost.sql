-- A renewal reads the cursors of its lease, however many others there are, while the server
-- remembers the lease whole; else it reads all of them, and finds the same.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
-- The server remembers the leases of other tests, too: this one takes ids with room for 128
-- partitions, which it finds out with leases that are over.
CREATE TEMP TABLE leases (n int, id uuid);
DO $$
DECLARE
    candidate uuid;
BEGIN
    FOR n IN 1..4 LOOP
        LOOP
            candidate := gen_random_uuid();
            PERFORM queen.stat_lease(gen_random_uuid(), 'g', now() - interval '1 hour', candidate) FROM generate_series(1, 128);
            COMMIT;
            EXIT WHEN cardinality(queen.log_lease_partitions(candidate)) = 128;
        END LOOP;
        INSERT INTO leases VALUES (n, candidate);
    END LOOP;
END
$$;
-- Ids that it does not know at all.
INSERT INTO leases SELECT n, gen_random_uuid() FROM generate_series(5, 6) AS n;
CREATE FUNCTION pg_temp.lease(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT id FROM leases WHERE leases.n = lease.n $$;
CREATE FUNCTION pg_temp.push_many(queue text, n int) RETURNS bigint LANGUAGE sql AS $$
    SELECT queen.log_provision(array_agg(pg_temp.tenant()), array_agg(queue), array_agg('p' || i)) FROM generate_series(1, n) AS i;
    SELECT count(*)
      FROM queen.log_push(array_fill(pg_temp.tenant(), ARRAY[n]), array_fill(queue, ARRAY[n]), ARRAY(SELECT 'p' || i FROM generate_series(1, n) AS i),
                          array_fill(1, ARRAY[n]), array_fill(queen.log_hash('a'), ARRAY[n]), array_fill(pg_temp.segment(ARRAY['a']), ARRAY[n]), false)
     WHERE status = 'queued';
$$;
CREATE FUNCTION pg_temp.pop_many(queue text, lease int, most int, grp text DEFAULT 'g') RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*)
      FROM queen.log_pop(ARRAY[pg_temp.tenant()], ARRAY[queue], ARRAY[NULL], ARRAY[grp], ARRAY[pg_temp.lease(lease)], ARRAY[most], ARRAY[most],
                         ARRAY[3600], ARRAY[false], ARRAY[false], ARRAY[NULL], ARRAY[NULL]::timestamptz[])
     WHERE status = 'segment';
$$;
CREATE FUNCTION pg_temp.renew(n int) RETURNS int LANGUAGE sql AS $$
    SELECT renewed FROM queen.log_renew(pg_temp.tenant(), pg_temp.lease(n), 7200, NULL);
$$;
-- Whether all cursors were read.
CREATE FUNCTION pg_temp.renew_reads(n int) RETURNS TABLE (renewed int, scans bigint) LANGUAGE plpgsql AS $$
DECLARE
    before bigint := (SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relid = 'queen.log_consumers'::regclass);
BEGIN
    renewed := pg_temp.renew(n);
    scans := (SELECT seq_scan - before FROM pg_stat_xact_user_tables WHERE relid = 'queen.log_consumers'::regclass);
    RETURN NEXT;
END
$$;
SELECT pg_temp.push_many('renew', 300);
INSERT INTO queen.log_consumers (partition_id, consumer_group) SELECT id, 'idle' || i FROM queen.log_partitions, generate_series(1, 10) AS i;
SELECT pg_temp.pop_many('renew', 1, 3);
SELECT * FROM pg_temp.renew_reads(1);
-- Two groups, one partition of which is the same.
SELECT pg_temp.pop_many('renew', 1, 1, 'h');
SELECT * FROM pg_temp.renew_reads(1);
-- What is over is no cursor of the lease any more, whatever is remembered.
UPDATE queen.log_consumers SET worker_id = NULL, lease_expires_at = NULL, batch_end = NULL
 WHERE partition_id IN (SELECT partition_id FROM queen.log_consumers WHERE worker_id = pg_temp.lease(1) AND consumer_group = 'g' LIMIT 2) AND consumer_group = 'g';
SELECT * FROM pg_temp.renew_reads(1);

-- A lease that the transaction itself has taken, or that was rolled back.
BEGIN;
SELECT pg_temp.pop_many('renew', 5, 2);
SELECT * FROM pg_temp.renew_reads(5);
ROLLBACK;
SELECT * FROM pg_temp.renew_reads(5);
-- A savepoint's lease is forgotten with it.
BEGIN;
SELECT pg_temp.pop_many('renew', 2, 1);
SAVEPOINT s;
SELECT pg_temp.pop_many('renew', 2, 2, 'h');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM unnest(queen.log_lease_partitions(pg_temp.lease(2))) AS l (id) JOIN queen.log_partitions AS p USING (id);
SELECT * FROM pg_temp.renew_reads(2);

-- Nobody has told the server.
UPDATE queen.log_consumers SET worker_id = pg_temp.lease(6), lease_expires_at = now() + interval '1 hour', batch_end = 0
 WHERE consumer_group = 'idle1' AND partition_id IN (SELECT id FROM queen.log_partitions ORDER BY name LIMIT 4);
SELECT * FROM pg_temp.renew_reads(6);

-- Many partitions are remembered, too; of more than 128 none is. (128 themselves: see above.)
SELECT pg_temp.pop_many('renew', 3, 100, 'most');
SELECT * FROM pg_temp.renew_reads(3);
SELECT pg_temp.pop_many('renew', 4, 129, 'more');
SELECT * FROM pg_temp.renew_reads(4);
SELECT queen.log_lease_partitions(pg_temp.lease(4)) IS NULL;
SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;
