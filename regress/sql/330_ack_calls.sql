-- Many acknowledgements in one call: each by itself, several of one cursor in turn.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b', 'c', 'd');
SELECT base_offset FROM pg_temp.push('q', 'r', 'a', 'b');
SELECT count(*) FROM pg_temp.pop('q', partitions => 0);
SELECT count(*) FROM pg_temp.pop('q', grp => 'g', worker => 2, partitions => 0);
SELECT pg_temp.partition_id('q', 'p') AS p, pg_temp.partition_id('q', 'r') AS r, pg_temp.tenant() AS t,
       pg_temp.worker(1) AS w1, pg_temp.worker(2) AS w2, '00000000-0000-0000-0000-000000000002' AS foreign_tenant \gset

-- Two partitions, two groups; call 1 of a cursor is done before call 2, whatever their numbers.
-- A call that is over has ended the lease: the next one is refused, as it would be alone.
SELECT entry, success, error, lease_released, dlq, noop, busy, queue, partition, more
  FROM queen.log_ack(array_fill(:'t'::uuid, '{8}'),
       ARRAY[:'p', :'r', :'p', :'p', :'p', :'p', :'p', :'p']::uuid[],
       '{__QUEUE_MODE__,__QUEUE_MODE__,g,__QUEUE_MODE__,g,g,g,g}',
       ARRAY[:'w1', :'w1', :'w2', :'w1', :'w2', :'w2', :'w2', :'w2']::uuid[],
       '{7,7,7,7,3,3,2,1}',
       '{completed,completed,completed,completed,completed,failed,completed,completed}',
       array_fill(NULL::text, '{8}'), array_fill(1, '{8}'), '{b,b,c,a,a,d,d,d}', false);
SELECT * FROM pg_temp.cursors('q');

-- Bad entries fail by themselves, also inside an acknowledgement.
SELECT entry, success, error
  FROM queen.log_ack(ARRAY[:'t', :'t', :'t', :'t', :'t', NULL, :'t', :'t']::uuid[],
       ARRAY[:'p', :'p', :'p', NULL, :'p', :'p', :'p', :'p']::uuid[],
       '{__QUEUE_MODE__,__QUEUE_MODE__,__QUEUE_MODE__,__QUEUE_MODE__,__QUEUE_MODE__,__QUEUE_MODE__,NULL,__QUEUE_MODE__}',
       array_fill(NULL::uuid, '{8}'), '{1,1,1,1,1,1,1,NULL}',
       '{completed,completed,completed,completed,success,completed,completed,completed}',
       array_fill(NULL::text, '{8}'), array_fill(1, '{8}'), '{c,"",NULL,c,c,c,c,c}', false);
SELECT committed FROM pg_temp.cursors('q') WHERE partition = 'p' AND grp = '__QUEUE_MODE__';

-- V-96: another tenant's partition is not there, also when its id, and a lease id, are known.
SELECT entry, success, error
  FROM queen.log_ack(ARRAY[:'foreign_tenant', :'t', :'foreign_tenant']::uuid[], ARRAY[:'p', :'p', :'p']::uuid[],
       array_fill('__QUEUE_MODE__'::text, '{3}'), ARRAY[:'w1', :'w1', NULL]::uuid[], '{1,1,1}',
       array_fill('completed'::text, '{3}'), array_fill(NULL::text, '{3}'), '{1,1,1}', '{d,d,d}', false);
-- Nor is there a cursor of a group that never popped, a partition that never was, a deleted queue.
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{a}', grp => 'nobody');
SELECT * FROM pg_temp.ack('q', 'nowhere', NULL, '{a}');
SELECT entry, success, error
  FROM queen.log_ack(ARRAY[:'t']::uuid[], '{99999999-9999-9999-9999-999999999999}', '{g}', '{NULL}', '{1}',
                     '{completed}', '{NULL}', '{1}', '{a}', true);

-- An entry for several messages: a row for as many in succession as fared alike. Bad messages fail by themselves.
SELECT base_offset FROM pg_temp.push('runs', 'p', 'a', 'b', 'c', 'd', 'e', 'f');
SELECT ids FROM pg_temp.pop('runs', worker => 3);
SELECT pg_temp.partition_id('runs', 'p') AS runs \gset
CREATE FUNCTION pg_temp.runs(partition uuid, calls int[], statuses text[], errors text[], counts int[], ids text[])
RETURNS TABLE (entry int, messages int, success boolean, error text, lease_released boolean, dlq boolean, noop boolean)
LANGUAGE sql AS $$
    SELECT a.entry, a.messages, a.success, a.error, a.lease_released, a.dlq, a.noop
      FROM (SELECT ARRAY[cardinality(calls)] AS n) AS c
     CROSS JOIN LATERAL queen.log_ack(
               array_fill(pg_temp.tenant(), n), array_fill(partition, n), array_fill('__QUEUE_MODE__'::text, n),
               array_fill(pg_temp.worker(3), n), calls, statuses, errors, counts, ids, false) AS a;
$$;
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', '{7}', '{a,x,y,b,"",NULL,b}');
-- None of them is good: the cursor is not even looked for.
SELECT * FROM pg_temp.runs(:'runs', '{1,1}', '{completed,nonsense}', '{NULL,NULL}', '{2,3}', '{NULL,"",c,"",d}');
-- Two entries are one acknowledgement, and a third, between them, another; the first is done first.
SELECT * FROM pg_temp.runs(:'runs', '{1,2,1}', '{completed,completed,dlq}', '{NULL,NULL,why}', '{2,2,3}', '{a,c,e,f,b,e,d}');
SELECT * FROM pg_temp.cursors('runs');
SELECT "offset", transaction_id, error FROM queen.log_dlq;
SELECT ids FROM pg_temp.pop('runs', worker => 3);
-- The same message twice, below and above the cursor.
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', '{5}', '{e,d,e,f,f}');
SELECT * FROM pg_temp.cursors('runs');

SELECT count(*) FROM pg_temp.pop('q', grp => 'late', partitions => 0);
SELECT queen.log_delete_queue(pg_temp.tenant(), 'q');
SELECT entry, success, error
  FROM queen.log_ack(ARRAY[:'t']::uuid[], ARRAY[:'p']::uuid[], '{late}', '{NULL}', '{1}', '{completed}', '{NULL}', '{1}', '{a}', true);

SELECT * FROM queen.log_ack('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false);
\set VERBOSITY sqlstate
SELECT * FROM queen.log_ack('{}', '{}', '{}', '{}', '{}', '{a}', '{}', '{}', '{}', false);
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', NULL, '{a}');
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', '{1}', NULL);
\set VERBOSITY terse
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', '{1}', '{}');
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', '{1}', '{a,b}');
SELECT * FROM pg_temp.runs(:'runs', '{1}', '{completed}', '{NULL}', '{NULL}', '{a}');
SELECT * FROM pg_temp.runs(:'runs', '{1,1}', '{completed,completed}', '{NULL,NULL}', '{0,1}', '{a}');
SELECT * FROM pg_temp.runs(:'runs', '{1,1}', '{completed,completed}', '{NULL,NULL}', '{-1,2}', '{a}');
SELECT * FROM pg_temp.runs(:'runs', '{1,1,1}', '{completed,completed,completed}', '{NULL,NULL,NULL}',
                           '{2147483647,2147483647,3}', '{a}');
\set VERBOSITY sqlstate
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM queen.log_ack('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false);
ROLLBACK;
BEGIN;
SELECT * FROM queen.log_ack('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false);
PREPARE TRANSACTION 'ack';
