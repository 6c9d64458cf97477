-- Pop: what is claimed and delivered, and what the cursor looks like afterwards.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all

-- V-21: offsets ascend without skipping; the next batch starts at the first uncommitted offset.
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b', 'c');
SELECT base_offset FROM pg_temp.push('q', 'p', 'd', 'e');
SELECT * FROM pg_temp.pop('q', batch => 4);
SELECT * FROM pg_temp.cursors('q');

-- V-20: one lease per partition and group; another group has its own.
SELECT * FROM pg_temp.pop('q', worker => 2);
SELECT * FROM pg_temp.pop('q', 'p', worker => 2);
SELECT * FROM pg_temp.pop('q', 'p', grp => 'other', worker => 2, batch => 1);
SELECT retry_at - clock_timestamp() BETWEEN interval '1 second' AND interval '60 seconds' AS at_lease_end
  FROM pg_temp.pop_rows('q', worker => 2);

-- Expiry gives the batch to the next one, counts the attempt and charges nothing.
SELECT pg_temp.expire('q');
SELECT * FROM pg_temp.pop('q', worker => 2, batch => 4);
SELECT * FROM pg_temp.cursors('q');

-- V-26: a start in the middle of a segment. Another first offset is another batch: attempt 1 again
-- after a complete ack.
SELECT * FROM pg_temp.ack('q', 'p', 2, '{d}');
SELECT * FROM pg_temp.pop('q', worker => 3);
SELECT * FROM pg_temp.ack('q', 'p', 3, '{e}');
SELECT * FROM pg_temp.pop('q');
SELECT retry_at FROM pg_temp.pop_rows('q');

-- V-23: batch bounds the messages of the call, partitions the partitions; one lease id for all.
SELECT count(*) FROM generate_series(1, 5) AS i, pg_temp.push('wide', 'p' || i, 'a' || i, 'b' || i, 'c' || i);
SELECT count(DISTINCT partition), sum(last - first + 1) FROM pg_temp.pop('wide', batch => 100, partitions => 2);
SELECT count(DISTINCT partition), sum(last - first + 1) FROM pg_temp.pop('wide', grp => 'b', batch => 7, partitions => 0);
SELECT count(DISTINCT partition), sum(last - first + 1) FROM pg_temp.pop('wide', grp => 'c', batch => 2, partitions => 5);
SELECT count(DISTINCT partition), sum(last - first + 1) FROM pg_temp.pop('wide', grp => 'd', batch => 10000, partitions => 0);
SELECT grp, count(*) FILTER (WHERE leased) FROM pg_temp.cursors('wide') GROUP BY grp ORDER BY grp;
-- A partition that was looked at in vain is not counted.
SELECT count(DISTINCT partition), sum(last - first + 1) FROM pg_temp.pop('wide', batch => 100, partitions => 3, worker => 2);
SELECT * FROM pg_temp.pop('wide', worker => 2);

-- V-31: no partition waits for ever: 5 partitions, one per pop, none twice while it is leased.
SELECT count(DISTINCT p.partition)
  FROM generate_series(1, 5) AS i, LATERAL pg_temp.pop('wide', grp => 'e', worker => i) AS p;

-- V-24: the request's lease, else the queue's.
SELECT queen.log_configure(pg_temp.tenant(), 'lease', NULL, NULL, '{}', 'merge') -> 'configured';
SELECT count(*) FROM generate_series(1, 2) AS i, pg_temp.push('lease', 'p' || i, 'a');
CREATE FUNCTION pg_temp.lease_length(queue text, part text, seconds int) RETURNS interval
LANGUAGE sql AS $$
    SELECT FROM pg_temp.pop_rows(queue, part, lease => seconds);
    SELECT lease_expires_at - lease_acquired_at FROM queen.log_consumers
     WHERE partition_id = pg_temp.partition_id(queue, part);
$$;
SELECT pg_temp.lease_length('lease', 'p1', NULL), pg_temp.lease_length('lease', 'p2', 7);
SELECT base_offset FROM pg_temp.push('implicit', 'p1', 'a');
SELECT base_offset FROM pg_temp.push('implicit', 'p2', 'a');
SELECT pg_temp.lease_length('implicit', 'p1', NULL), pg_temp.lease_length('implicit', 'p2', 0);

-- V-25: auto-ack moves the cursor to the last delivered offset and leaves no lease; attempts and
-- budget are not its business.
SELECT base_offset FROM pg_temp.push('auto', 'p', 'a', 'b', 'c');
SELECT * FROM pg_temp.pop('auto', batch => 2, auto => true);
SELECT * FROM pg_temp.cursors('auto');
SELECT * FROM pg_temp.pop('auto', auto => true);
SELECT * FROM pg_temp.pop('auto', auto => true);
SELECT count(*) FROM queen.log_consumers AS c
 WHERE c.partition_id = pg_temp.partition_id('auto', 'p') AND num_nonnulls(batch_end, worker_id, lease_expires_at) > 0;

-- V-27: segments in front of the next offset are gone: delivery continues at the next live one,
-- and the batch ends where it was read to.
SELECT count(*) FROM generate_series(1, 3) AS i, pg_temp.push('gap', 'p', 'a' || i, 'b' || i);
SELECT pg_temp.retain_from('gap', 'p', 2);
SELECT * FROM pg_temp.pop('gap', batch => 3);
SELECT * FROM pg_temp.cursors('gap');
SELECT * FROM pg_temp.ack('gap', 'p', 1, '{a3}');
-- A segment that vanished in the middle is stepped over in the same way.
SELECT count(*) FROM generate_series(4, 6) AS i, pg_temp.push('gap', 'p', 'a' || i, 'b' || i);
DELETE FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('gap', 'p') AND base_offset IN (4, 8);
SELECT * FROM pg_temp.pop('gap', worker => 2);
SELECT * FROM pg_temp.ack('gap', 'p', 2, '{b6}');
SELECT * FROM pg_temp.cursors('gap');
-- With every segment gone the cursor is sealed at the last offset: no phantom backlog.
SELECT base_offset FROM pg_temp.push('gap', 'p', 'a7');
SELECT pg_temp.retain_from('gap', 'p', 13);
SELECT * FROM pg_temp.pop('gap');
SELECT * FROM pg_temp.cursors('gap');
SELECT retry_at FROM pg_temp.pop_rows('gap');
-- An expired lease on it does not outlive the seal.
SELECT base_offset FROM pg_temp.push('gap', 'p', 'a8');
SELECT * FROM pg_temp.pop('gap');
SELECT pg_temp.retain_from('gap', 'p', 14), pg_temp.expire('gap');
SELECT * FROM pg_temp.pop('gap', 'p');
SELECT * FROM pg_temp.cursors('gap');

-- A wildcard pop of an unknown queue is for the caller to provision; a pinned pop creates nothing.
SELECT status, retry_at FROM pg_temp.pop_rows('nowhere');
SELECT status, retry_at FROM pg_temp.pop_rows('nowhere', 'p');
SELECT status, retry_at FROM pg_temp.pop_rows('q', 'nowhere');
SELECT count(*) FROM queen.queues WHERE name = 'nowhere';
SELECT count(*) FROM queen.consumer_groups_metadata AS m JOIN queen.queues AS q ON q.id = m.queue_id
 WHERE q.name = 'implicit';
-- An empty queue is empty.
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{void}', '{p}');
SELECT status, retry_at FROM pg_temp.pop_rows('void');
-- A deleted queue is unknown, although its rows are still there.
SELECT base_offset FROM pg_temp.push('doomed', 'p', 'a');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'doomed');
SELECT status FROM pg_temp.pop_rows('doomed');
SELECT status FROM pg_temp.pop_rows('doomed', 'p');
-- Another tenant's queue of the same name is another queue.
SELECT status FROM queen.log_pop('{00000000-0000-0000-0000-000000000002}', '{q}', '{NULL}', '{g}', ARRAY[pg_temp.worker(1)],
                                 '{1}', '{1}', '{NULL}', '{f}', '{f}', '{NULL}', '{NULL}');

-- An answer ends with the segment that reaches 32 MiB, within a partition and over several; the
-- rest is delivered later. Compressed by the server, because only the length counts.
CREATE TEMP TABLE bulk AS SELECT mib, convert_to(repeat('x', mib << 20), 'UTF8') AS blob FROM unnest('{17,33}'::int[]) AS mib;
SELECT count(*) FROM generate_series(1, 4) AS i, pg_temp.push('big', 'p', 'm' || i);
SELECT count(*) FROM generate_series(1, 3) AS i, pg_temp.push('heavy', 'p' || i, 'a');
UPDATE queen.log_segments AS s
   SET blob = b.blob
  FROM bulk AS b, queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
 WHERE p.id = s.partition_id AND q.name IN ('big', 'heavy') AND b.mib = CASE s.base_offset WHEN 2 THEN 33 ELSE 17 END;
SELECT first_offset, last_offset, length(blob) >> 20 AS mib FROM pg_temp.pop_rows('big', 'p');
SELECT batch_end, leased FROM pg_temp.cursors('big');
SELECT first_offset, last_offset, length(blob) >> 20 AS mib FROM pg_temp.pop_rows('big', 'p', grp => 'g', auto => true);
SELECT first_offset, last_offset, length(blob) >> 20 AS mib FROM pg_temp.pop_rows('big', 'p', grp => 'g', auto => true);
SELECT first_offset, last_offset, length(blob) >> 20 AS mib FROM pg_temp.pop_rows('big', 'p', grp => 'g', auto => true);
SELECT count(*) FROM pg_temp.pop_rows('heavy', partitions => 0);
SELECT count(*) FROM pg_temp.pop_rows('heavy', partitions => 0, worker => 2);
-- It is the limit of a call: entries after the one that reached it get one segment each.
SELECT entry, first_offset, last_offset, length(blob) >> 20 AS mib
  FROM queen.log_pop(array_fill(pg_temp.tenant(), '{3}'), '{big,big,big}', '{p,p,NULL}', '{x,y,z}',
                     array_fill(NULL::uuid, '{3}'), '{10,10,10}', '{1,1,0}', array_fill(NULL::int, '{3}'),
                     '{t,t,t}', '{f,f,f}', array_fill(NULL::text, '{3}'), array_fill(NULL::timestamptz, '{3}'));

-- Several pops in one call: each answers for itself, in entry order, bad ones included.
SELECT count(*) FROM generate_series(1, 2) AS i, pg_temp.push('many', 'p' || i, 'a' || i, 'b' || i);
SELECT entry, status, count(*), sum(last_offset - first_offset + 1) AS messages, min(error) AS error
  FROM queen.log_pop(array_fill(pg_temp.tenant(), '{13}'),
                     ARRAY['many','many','many','many',E'a\tb','many','many','many','many','many','many','many','nowhere'],
                     ARRAY[NULL,NULL,NULL,'p1','p','',NULL,NULL,NULL,NULL,NULL,NULL,NULL],
                     ARRAY['g','g','g','h','g','g','',NULL,'g','g','g','g','g'],
                     ARRAY[pg_temp.worker(1),pg_temp.worker(2),pg_temp.worker(3),pg_temp.worker(4),pg_temp.worker(5),
                           pg_temp.worker(6),pg_temp.worker(7),pg_temp.worker(8),NULL,pg_temp.worker(9),
                           pg_temp.worker(10),pg_temp.worker(11),pg_temp.worker(12)],
                     '{1,1,1,10,1,1,1,1,1,0,10001,1,1}', array_fill(1, '{13}'),
                     '{NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,86401,NULL}',
                     array_fill(false, '{13}'), array_fill(false, '{13}'), array_fill(NULL::text, '{13}'),
                     array_fill(NULL::timestamptz, '{13}'))
 GROUP BY entry, status ORDER BY entry;
SELECT status, error FROM pg_temp.pop_rows('many', mode => 'latest');
SELECT queen.log_pop('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
\set VERBOSITY sqlstate
SELECT queen.log_pop('{}', '{a}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
SELECT queen.log_pop(NULL, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT queen.log_pop('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
ROLLBACK;
BEGIN;
SELECT status FROM pg_temp.pop_rows('void');
PREPARE TRANSACTION 'pop';
