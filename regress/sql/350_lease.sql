-- Leases: renewal, and giving them back.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
-- Lease ends in thousands of seconds from now: no machine is that slow.
CREATE FUNCTION pg_temp.leases(queue text) RETURNS TABLE (partition text, grp text, worker text, ends_in int)
LANGUAGE sql AS $$
    SELECT p.name, c.consumer_group, ltrim(c.worker_id::text, '0-'),
           ceil(extract(epoch FROM c.lease_expires_at - clock_timestamp()) / 1000)::int
      FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id
      JOIN queen.log_consumers AS c ON c.partition_id = p.id
     WHERE q.name = queue
     ORDER BY p.name COLLATE "C", c.consumer_group COLLATE "C";
$$;
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b');
SELECT base_offset FROM pg_temp.push('q', 'r', 'a', 'b');
SELECT count(*) FROM pg_temp.pop('q', partitions => 0, lease => 4000);
SELECT count(*) FROM pg_temp.pop('q', 'p', grp => 'g', lease => 10000);
SELECT count(*) FROM pg_temp.pop('q', 'r', grp => 'h', worker => 2, lease => 6000);
SELECT * FROM pg_temp.leases('q');

-- V-52: all partitions and groups of the lease are renewed; none is shortened; the answer is the
-- earliest end.
SELECT renewed, expires_at FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 7000, NULL) \gset
SELECT :renewed AS renewed, min(lease_expires_at) = :'expires_at' AS earliest
  FROM queen.log_consumers WHERE worker_id = pg_temp.worker(1);
SELECT * FROM pg_temp.leases('q');
SELECT renewed FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 1, NULL);
SELECT * FROM pg_temp.leases('q');
-- The named partitions only.
SELECT renewed FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 20000,
                                    ARRAY[pg_temp.partition_id('q', 'r'), pg_temp.partition_id('q', 'r'), NULL]);
SELECT * FROM pg_temp.leases('q');
-- Nothing expired is revived, nobody else's is touched (V-96).
UPDATE queen.log_consumers SET lease_expires_at = clock_timestamp() - interval '1500 seconds'
 WHERE partition_id = pg_temp.partition_id('q', 'r') AND consumer_group = '__QUEUE_MODE__';
SELECT renewed FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 30000, NULL);
SELECT * FROM pg_temp.leases('q');
SELECT * FROM queen.log_renew('00000000-0000-0000-0000-000000000002', pg_temp.worker(1), 30000, NULL);
SELECT * FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(3), 30000, NULL);
SELECT * FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 30000, '{}');
-- A renewed lease still takes its ack.
SELECT * FROM pg_temp.ack('q', 'p', 1, '{b}');

-- Given back: free at once, cursor and budget as they were. Somebody else's, or nobody's, is not.
SELECT base_offset FROM pg_temp.push('back', 'p', 'a', 'b', 'c');
SELECT ids FROM pg_temp.pop('back', batch => 2);
SELECT * FROM pg_temp.ack('back', 'p', 1, '{a,b}', '{completed,failed}');
SELECT ids FROM pg_temp.pop('back', batch => 2, worker => 2);
SELECT * FROM queen.log_release(ARRAY[pg_temp.tenant(), '00000000-0000-0000-0000-000000000002', pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant()],
    array_fill(pg_temp.partition_id('back', 'p'), '{5}'), '{__QUEUE_MODE__,__QUEUE_MODE__,__QUEUE_MODE__,other,__QUEUE_MODE__}',
    ARRAY[pg_temp.worker(1), pg_temp.worker(2), pg_temp.worker(2), pg_temp.worker(2), NULL]);
SELECT * FROM pg_temp.cursors('back');
SELECT ids FROM pg_temp.pop('back', worker => 3);
SELECT * FROM pg_temp.ack('back', 'p', 2, '{b}');
SELECT * FROM queen.log_release('{}', '{}', '{}', '{}');

\set VERBOSITY sqlstate
SELECT * FROM queen.log_release('{}', '{}', '{a}', '{}');
SELECT * FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 0, NULL);
SELECT * FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 86401, NULL);
SELECT * FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), NULL, NULL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM queen.log_renew(pg_temp.tenant(), pg_temp.worker(1), 1, NULL);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM queen.log_release('{}', '{}', '{}', '{}');
ROLLBACK;
