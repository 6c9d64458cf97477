-- Lease expiry: leases that ran out end, and nothing but the lease changes.
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
CREATE FUNCTION pg_temp.expiry(max_rows int, part text[] DEFAULT NULL, grp text[] DEFAULT NULL)
RETURNS TABLE (rows bigint, messages bigint, bytes bigint, more boolean)
LANGUAGE sql AS $$
    SELECT * FROM queen.lease_expiry_step(max_rows,
        (SELECT array_agg(pg_temp.partition_id('q', n)) FROM unnest(part) AS n), grp);
$$;
SELECT status FROM pg_temp.push('q', 'a', 'a1', 'a2', 'a3');
SELECT status FROM pg_temp.push('q', 'b', 'b1', 'b2');
SELECT ids FROM pg_temp.pop('q', 'a', batch => 2);
SELECT ids FROM pg_temp.pop('q', 'a', 'g', mode => 'all', worker => 2);
SELECT ids FROM pg_temp.pop('q', 'b', worker => 3);

-- A lease that lives stays.
SELECT * FROM pg_temp.expiry(10);
SELECT * FROM pg_temp.expiry(10, '{a,b}', '{g,__QUEUE_MODE__}');
SELECT * FROM pg_temp.cursors('q');

-- With names only those, without all; never more than max_rows.
SELECT pg_temp.expire('q');
SELECT * FROM pg_temp.expiry(10, '{a,b}', '{g,g}');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.expiry(1);
SELECT * FROM pg_temp.expiry(1);
SELECT * FROM pg_temp.expiry(1);
SELECT * FROM pg_temp.cursors('q');

-- What is cleared, and what the consumer of before can do with its lease: nothing. Without a lease
-- there is nothing to fail.
SELECT batch_end IS NULL, worker_id IS NULL, lease_expires_at IS NULL, lease_acquired_at IS NOT NULL
  FROM queen.log_consumers;
SELECT success, error FROM pg_temp.ack('q', 'a', 1, '{a2}');
SELECT success, error FROM pg_temp.ack('q', 'a', NULL, '{a2}', '{failed}');
SELECT renewed FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 60, NULL);

-- V-43: seven times: attempt_count tells, the retry budget is untouched.
CREATE TEMP TABLE seen (attempt int);
DO $$
BEGIN
    FOR i IN 1 .. 7 LOOP
        INSERT INTO seen SELECT p.attempt FROM pg_temp.pop('q', 'b', worker => 10 + i) AS p;
        PERFORM pg_temp.expire('q');
        PERFORM queen.lease_expiry_step(10);
    END LOOP;
END
$$;
SELECT array_agg(attempt) FROM seen;
SELECT partition, retries, attempt_offset, attempts, consumed FROM pg_temp.cursors('q') WHERE partition = 'b';
SELECT status, ids, attempt FROM pg_temp.pop('q', 'b', worker => 20);
SELECT success FROM pg_temp.ack('q', 'b', 20, '{b2}');
SELECT partition, committed, retries, attempts, consumed FROM pg_temp.cursors('q') WHERE partition = 'b';

-- The same without the step: a pop judges expiry by itself.
SELECT status, ids, attempt FROM pg_temp.pop('q', 'a', worker => 21);
SELECT pg_temp.expire('q');
SELECT status, ids, attempt FROM pg_temp.pop('q', 'a', worker => 22);
-- That one is not ended for the end of the one before it.
SELECT * FROM pg_temp.expiry(10);
SELECT success FROM pg_temp.ack('q', 'a', 22, '{a3}');

SELECT * FROM pg_temp.expiry(0);
SELECT * FROM queen.lease_expiry_step(1, ARRAY[gen_random_uuid()], '{}');
