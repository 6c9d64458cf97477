-- What an acknowledgement reads: a few rows by primary key, however many partitions there are and
-- however long the sidecar is, on either side of the batch.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
-- Partitions with a cursor, and rows of the sidecar and the log of partition p1.
CREATE FUNCTION pg_temp.fill(first int, last int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO queen.log_partitions (queue_id, name)
    SELECT q.id, 'p' || i FROM queen.queues AS q, generate_series(first, last) AS i
    ON CONFLICT DO NOTHING;
    INSERT INTO queen.log_consumers (partition_id, consumer_group)
    SELECT p.id, 'g' FROM queen.log_partitions AS p ON CONFLICT DO NOTHING;
    INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
    SELECT pg_temp.partition_id('cost', 'p1'), i, i, now(), queen.log_hash('m' || i) FROM generate_series(first - 1, last - 1) AS i;
    INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
    SELECT pg_temp.partition_id('cost', 'p1'), i, i, now(), '\x01' FROM generate_series(first - 1, last - 1) AS i;
    UPDATE queen.log_partitions SET last_offset = last - 1 WHERE name = 'p1';
$$;
CREATE FUNCTION pg_temp.lease(after bigint, upto bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE queen.log_consumers SET committed = after, batch_end = upto, worker_id = pg_temp.worker(1), lease_expires_at = 'infinity'
     WHERE partition_id = pg_temp.partition_id('cost', 'p1');
$$;
CREATE VIEW pg_temp.reads AS
    SELECT relname, seq_scan, idx_tup_fetch, n_tup_hot_upd FROM pg_stat_xact_user_tables
     WHERE schemaname = 'queen' AND relname IN ('queues', 'log_partitions', 'log_segments', 'log_txns', 'log_consumers')
     ORDER BY relname COLLATE "C";
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{cost}', '{p1}');
-- The ids are given: a look-up of them is no part of the cost.
SELECT pg_temp.partition_id('cost', 'p1') AS p1, pg_temp.tenant() AS tenant, pg_temp.worker(1) AS worker \gset
PREPARE ack(text[]) AS
    SELECT count(*) FILTER (WHERE success) AS acked, bool_and(lease_released) AS released
      FROM queen.log_ack(array_fill(:'tenant'::uuid, ARRAY[cardinality($1)]), array_fill(:'p1'::uuid, ARRAY[cardinality($1)]),
                         array_fill('g'::text, ARRAY[cardinality($1)]), array_fill(:'worker'::uuid, ARRAY[cardinality($1)]),
                         array_fill(1, ARRAY[cardinality($1)]), array_fill('completed'::text, ARRAY[cardinality($1)]),
                         array_fill(NULL::text, ARRAY[cardinality($1)]), array_fill(1, ARRAY[cardinality($1)]), $1, false);

SELECT pg_temp.fill(1, 10);
SELECT pg_temp.lease(2, 5);
SELECT pg_stat_force_next_flush();
BEGIN;
EXECUTE ack('{m3,m4,m5}');
SELECT * FROM pg_temp.reads;
ROLLBACK;

SELECT pg_temp.fill(11, 3000);
SELECT pg_temp.lease(1500, 1503);
SELECT pg_stat_force_next_flush();
BEGIN;
EXECUTE ack('{m1501,m1502,m1503}');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- What was passed already is looked for from the cursor downwards.
SELECT pg_stat_force_next_flush();
BEGIN;
EXECUTE ack('{m1498}');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- A row of the sidecar that is stored out of line, and a batch that begins and ends inside it.
DO $$ BEGIN PERFORM pg_temp.push('wide', 'p', VARIADIC ARRAY(SELECT 'm' || i FROM generate_series(0, 499) AS i)); END $$;
SELECT length(hashes), pg_column_size(hashes) > 2000 AS long FROM queen.log_txns WHERE partition_id = pg_temp.partition_id('wide', 'p');
SELECT first, last FROM pg_temp.pop('wide', batch => 400);
SELECT * FROM pg_temp.ack('wide', 'p', 1, '{m0,m399,m400}');
SELECT first, last FROM pg_temp.pop('wide');
SELECT * FROM pg_temp.ack('wide', 'p', 1, '{m399,m400,m499}');
SELECT * FROM pg_temp.cursors('wide');

-- A transaction sees what it did itself: messages that it pushed, the lease that it took, the
-- acknowledgement before. What a savepoint took back has not been.
BEGIN;
SELECT base_offset FROM pg_temp.push('own', 'p', 'a', 'b', 'c');
SELECT ids FROM pg_temp.pop('own');
SAVEPOINT before;
SELECT * FROM pg_temp.ack('own', 'p', 1, '{a,b,c}');
SELECT * FROM pg_temp.cursors('own');
ROLLBACK TO before;
SELECT * FROM pg_temp.cursors('own');
SELECT * FROM pg_temp.ack('own', 'p', 1, '{a}');
SELECT * FROM pg_temp.ack('own', 'p', 1, '{b}', '{dlq}');
SELECT "offset", transaction_id, error FROM queen.log_dlq;
SELECT ids FROM pg_temp.pop('own', worker => 2);
SELECT * FROM pg_temp.ack('own', 'p', 2, '{c}');
COMMIT;
SELECT * FROM pg_temp.cursors('own');
-- Several turns of one cursor in one call: the second finds what the first has left.
SELECT base_offset FROM pg_temp.push('own', 'p', 'd', 'e', 'f');
SELECT ids FROM pg_temp.pop('own');
SELECT entry, success, error, lease_released, noop
  FROM queen.log_ack(array_fill(pg_temp.tenant(), '{4}'), array_fill(pg_temp.partition_id('own', 'p'), '{4}'),
                     array_fill('__QUEUE_MODE__'::text, '{4}'), array_fill(pg_temp.worker(1), '{4}'), '{5,5,4,3}',
                     array_fill('completed'::text, '{4}'), array_fill(NULL::text, '{4}'), '{1,1,1,1}', '{d,e,d,f}', false);
SELECT * FROM pg_temp.cursors('own');

-- A table with a trigger of somebody's is not written behind the trigger's back.
CREATE FUNCTION pg_temp.watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER watch BEFORE UPDATE ON queen.log_consumers FOR EACH ROW EXECUTE FUNCTION pg_temp.watch();
SELECT * FROM pg_temp.ack('own', 'p', NULL, '{f}');
DROP TRIGGER watch ON queen.log_consumers;
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT * FROM pg_temp.ack('own', 'p', NULL, '{f}');
ROLLBACK;
