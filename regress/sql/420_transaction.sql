-- Transactions: what HTTP cannot show of them.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE FUNCTION pg_temp.transact(queues text[], ids text[], part text, acks text[], worker uuid, leases uuid[] DEFAULT '{}')
RETURNS TABLE (entry int, success boolean, error text, reason text, dlq boolean, noop boolean)
LANGUAGE sql AS $$
    SELECT v.entry, v.success, v.error, v.reason, v.dlq, v.noop
      FROM queen.log_transaction(
               pg_temp.tenant(), queues, array_fill('p'::text, ARRAY[cardinality(queues)]), array_fill(1, ARRAY[cardinality(queues)]),
               ARRAY(SELECT queen.log_hash(i) FROM unnest(ids) WITH ORDINALITY AS u (i, n) ORDER BY n),
               ARRAY(SELECT pg_temp.segment(ARRAY[i]) FROM unnest(ids) WITH ORDINALITY AS u (i, n) ORDER BY n),
               array_fill(pg_temp.partition_id('in', part), ARRAY[cardinality(acks)]), array_fill('__QUEUE_MODE__'::text, ARRAY[cardinality(acks)]),
               array_fill(worker, ARRAY[cardinality(acks)]), acks, array_fill('completed'::text, ARRAY[cardinality(acks)]),
               array_fill(NULL::text, ARRAY[cardinality(acks)]), leases) AS v;
$$;
CREATE FUNCTION pg_temp.holder(part text) RETURNS uuid
LANGUAGE sql AS $$ SELECT worker_id FROM queen.log_consumers WHERE partition_id = pg_temp.partition_id('in', part) $$;
DO $$ BEGIN PERFORM pg_temp.push('in', 'a', 'a1', 'a2'), pg_temp.push('in', 'b', 'b1'), pg_temp.pop('in', 'a'), pg_temp.pop('in', 'b'); END $$;

-- One call may push to many queues and creates them.
SELECT * FROM pg_temp.transact('{x,y}', '{one,two}', 'a', '{a1}', pg_temp.holder('a'));
SELECT q.name, p.name, p.last_offset FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id WHERE q.name IN ('x', 'y') ORDER BY 1;

-- What is refused creates nothing either.
SELECT * FROM pg_temp.transact('{z}', '{three}', 'a', '{nope}', pg_temp.holder('a'));
SELECT * FROM pg_temp.transact('{z,x}', '{three,one}', 'a', '{}', NULL);
SELECT count(*) FROM queen.queues WHERE name = 'z';

-- A lease that holds another cursor is live as well; an ack needs the one that holds its own.
SELECT * FROM pg_temp.transact('{}', '{}', 'a', '{a2}', NULL, ARRAY[pg_temp.holder('b')]);
SELECT * FROM pg_temp.transact('{x}', '{four}', 'a', '{a2}', NULL, ARRAY[pg_temp.holder('a'), pg_temp.holder('b')]);
SELECT pg_temp.holder('a') IS NULL AS ended, pg_temp.holder('b') IS NOT NULL AS live;

-- Other tenants' partitions and leases.
SELECT v.entry, v.success, v.error, v.reason
  FROM queen.log_transaction('00000000-0000-0000-0000-000000000002', '{}', '{}', '{}', '{}', '{}', ARRAY[pg_temp.partition_id('in', 'b')], '{__QUEUE_MODE__}',
                             ARRAY[NULL]::uuid[], '{b1}', '{completed}', ARRAY[NULL]::text[], '{}') AS v;
SELECT v.entry, v.success, v.error, v.reason
  FROM queen.log_transaction('00000000-0000-0000-0000-000000000002', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
                             ARRAY[pg_temp.holder('b')]) AS v;

-- Bad entries refuse the transaction, bad arguments raise.
SELECT * FROM pg_temp.transact(ARRAY[E'a\tb'], '{five}', 'a', '{}', NULL);
SELECT * FROM queen.log_transaction(pg_temp.tenant(), '{x}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
SELECT * FROM queen.log_transaction(pg_temp.tenant(), '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, '{}');
SELECT * FROM queen.log_transaction(pg_temp.tenant(), '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM pg_temp.transact('{x}', '{six}', 'a', '{}', NULL);
ROLLBACK;

-- A caller's own transaction goes on after a refusal, and what the refusal rolled back is not remembered as stored.
BEGIN;
SELECT * FROM pg_temp.transact('{x}', '{seven}', 'b', '{nope}', pg_temp.holder('b'));
SELECT * FROM pg_temp.transact('{x}', '{seven}', 'b', '{b1}', pg_temp.holder('b'));
COMMIT;
SELECT * FROM pg_temp.transact('{x}', '{seven}', 'a', '{}', NULL);
