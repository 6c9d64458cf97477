-- The API for applications: ack, nack, renew, dead letters.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set api :srcdir '/lib/api.sql'
\set ECHO none
\i :segments
\i :api
\set ECHO all
CREATE FUNCTION pg_temp.cursor() RETURNS TABLE (committed bigint, batch_end bigint, leased boolean, retries int)
LANGUAGE sql AS $$
    SELECT committed, batch_end, worker_id IS NOT NULL, batch_retry_count FROM queen.log_consumers WHERE consumer_group = 'g';
$$;
SELECT count(*) FROM queen.push_many('q', '{0,1,2,3,4,5}', array_fill('p'::text, ARRAY[6]), '{m0,m1,m2,m3,m4,m5}');

-- V-40, V-41: a message completes everything before it; the last one ends the lease.
SELECT lease_id AS lease, partition_id AS part FROM queen.pop('q', 'g', batch => 3, subscription_mode => 'all') LIMIT 1 \gset
SELECT queen.ack(:'part', 'm1', :'lease', 'g');
SELECT * FROM pg_temp.cursor();
SELECT queen.ack(:'part', 'm1', :'lease', 'g') AS again;
SELECT queen.ack(:'part', 'm2', :'lease', 'g');
SELECT * FROM pg_temp.cursor();
SELECT queen.ack(:'part', 'm2', NULL, 'g') AS again;

-- V-42: failed attempts, then a dead letter; retry is free; dlq is at once.
SELECT queen.configure('q', '{"retryLimit":1}') -> 'retryLimit' AS limit;
SELECT lease_id AS lease FROM queen.pop('q', 'g', batch => 3) LIMIT 1 \gset
SELECT queen.nack(:'part', 'm3', :'lease', 'g', status => 'retry');
SELECT transaction_id, attempt, lease_id AS lease FROM queen.pop('q', 'g') \gset
SELECT :'transaction_id' AS id, :attempt AS attempt;
SELECT queen.nack(:'part', 'm3', :'lease', 'g', 'first');
SELECT * FROM pg_temp.cursor();
SELECT lease_id AS lease FROM queen.pop('q', 'g', batch => 3) LIMIT 1 \gset
SELECT queen.nack(:'part', 'm3', :'lease', 'g', 'second') AS dead;
SELECT * FROM pg_temp.cursor();
SELECT lease_id AS lease FROM queen.pop('q', 'g', batch => 3) LIMIT 1 \gset
SELECT queen.nack(:'part', 'm4', :'lease', 'g', 'poison', 'dlq') AS dead;
SELECT transaction_id, payload_text, partition, consumer_group, error, retry_count FROM queen.dead_letters('q');
SELECT transaction_id FROM queen.dead_letters('q', 'g', 1, 1);
SELECT count(*) FROM queen.dead_letters('q', 'other');
SELECT pg_temp.failure($$SELECT queen.dead_letters('nothing')$$);
SELECT pg_temp.failure($$SELECT queen.dead_letters('q', max_rows => -1)$$);

-- A refusal is an error, so that work is not committed that another worker will repeat.
SELECT lease_id AS lease FROM queen.pop('q', 'g') \gset
SELECT c AS call, pg_temp.failure('SELECT queen.' || replace(replace(c, 'PART', quote_literal(:'part')), 'LEASE', quote_literal(:'lease'))) FROM (VALUES
    (1, $$ack(PART, 'm5', gen_random_uuid(), 'g')$$),
    (2, $$nack(PART, 'm5', gen_random_uuid(), 'g')$$),
    (3, $$ack(PART, 'm5', LEASE)$$),
    (4, $$ack(PART, 'unknown', LEASE, 'g')$$),
    (5, $$ack(gen_random_uuid(), 'm5', LEASE, 'g')$$),
    (6, $$nack(PART, 'm0', LEASE, 'g')$$),
    (7, $$ack(NULL, 'm5', LEASE, 'g')$$),
    (8, $$ack(PART, NULL, LEASE, 'g')$$),
    (9, $$ack(PART, '', LEASE, 'g')$$),
    (10, $$nack(PART, 'm5', LEASE, 'g', status => 'completed')$$),
    (11, $$nack(PART, 'm5', LEASE, 'g', status => NULL)$$),
    (12, $$renew(gen_random_uuid())$$),
    (13, $$renew(LEASE, 0)$$),
    (14, $$renew(LEASE, 86401)$$),
    (15, $$renew(NULL)$$)) AS v (n, c) ORDER BY n;
SELECT * FROM pg_temp.cursor();

-- V-46: when the lease has run out, neither counts; without a lease id an ack still does.
UPDATE queen.log_consumers SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE consumer_group = 'g';
SELECT pg_temp.failure(format($$SELECT queen.ack(%L, 'm5', %L, 'g')$$, :'part', :'lease'));
SELECT pg_temp.failure(format($$SELECT queen.nack(%L, 'm5', %L, 'g')$$, :'part', :'lease'));
SELECT pg_temp.failure(format($$SELECT queen.renew(%L)$$, :'lease'));
SELECT queen.ack(:'part', 'm5', NULL, 'g') AS released;
SELECT pg_temp.failure(format($$SELECT queen.nack(%L, 'm5', NULL, 'g')$$, :'part'));

-- V-52: renewal covers all partitions of the lease, and never shortens it.
SELECT count(*) FROM queen.push_many('two', '{1,2}', '{a,b}');
SELECT lease_id AS lease FROM queen.pop('two', batch => 2, partitions => 0, lease_seconds => 1000) LIMIT 1 \gset
SELECT queen.renew(:'lease', 10) > clock_timestamp() + interval '900 seconds' AS kept;
SELECT queen.renew(:'lease', 5000) > clock_timestamp() + interval '4900 seconds' AS extended;
SELECT count(*) FROM queen.log_consumers WHERE worker_id = :'lease' AND lease_expires_at > clock_timestamp() + interval '4900 seconds';

-- A worker's whole turn in one transaction, and its rollback.
SELECT count(*) FROM queen.push_many('turn', '{1,2,3}', NULL, '{t1,t2,t3}');
BEGIN;
SELECT transaction_id, queen.ack(partition_id, transaction_id, lease_id) FROM queen.pop('turn', batch => 2);
ROLLBACK;
SELECT * FROM queen.lag('turn');
BEGIN;
SELECT status FROM queen.push('result', '1', 'p', 'out');
SELECT transaction_id, queen.ack(partition_id, transaction_id, lease_id) FROM queen.pop('turn', batch => 2);
SELECT transaction_id, attempt FROM queen.pop('turn', batch => 2);
COMMIT;
SELECT * FROM queen.lag('turn');

-- V-81: seek, to a time, to both ends, of one partition and of all.
SELECT count(*) FROM queen.push_many('seek', '{1,2,3}', '{a,a,b}', '{a1,a2,b1}');
SELECT status FROM queen.push('seek', '4', 'a', 'a3');
SELECT s.created_at AS since FROM queen.log_segments AS s WHERE s.partition_id = pg_temp.partition_id('seek', 'a') AND s.base_offset = 2 \gset
SELECT count(*) FROM queen.pop('seek', 'g', batch => 10, partitions => 0, subscription_mode => 'all');
SELECT queen.seek('seek', 'g', '-infinity') AS partitions;
SELECT transaction_id FROM queen.pop('seek', 'g', batch => 10, partitions => 0) ORDER BY 1;
SELECT queen.seek('seek', 'g', :'since', 'a') AS partitions;
SELECT transaction_id FROM queen.pop('seek', 'g', batch => 10, partitions => 0);
SELECT queen.seek('seek', 'g', 'infinity') AS partitions;
SELECT lag, leased FROM queen.lag('seek', 'g');
SELECT queen.seek('seek', NULL, 'infinity') AS partitions;
SELECT count(*) FROM queen.pop('seek', batch => 10, partitions => 0);
BEGIN;
SELECT queen.seek('seek', 'g', '-infinity') AS partitions;
ROLLBACK;
SELECT lag, leased FROM queen.lag('seek', 'g');
SELECT queen.seek('seek', 'g', 'infinity', 'unknown') AS partitions;
SELECT pg_temp.failure($$SELECT queen.seek('nothing', 'g', 'infinity')$$);
SELECT pg_temp.failure($$SELECT queen.seek('seek', '', 'infinity')$$);
SELECT pg_temp.failure($$SELECT queen.seek('seek', 'g', NULL)$$);
-- More partitions than one step takes.
SELECT count(*) FROM queen.push_many('wide', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 2500) AS i), (SELECT array_agg('p' || i) FROM generate_series(1, 2500) AS i));
SELECT queen.seek('wide', 'g', '-infinity') AS partitions;
SELECT lag FROM queen.lag('wide', 'g');

-- V-96: another tenant's queue, partition and lease are not there.
INSERT INTO queen.queues (tenant_id, name) VALUES ('00000000-0000-0000-0000-00000000000b', 'foreign');
INSERT INTO queen.log_partitions (queue_id, name, last_offset) SELECT id, 'p', 0 FROM queen.queues WHERE name = 'foreign';
INSERT INTO queen.log_consumers (partition_id, consumer_group, batch_end, worker_id, lease_expires_at)
SELECT p.id, '__QUEUE_MODE__', 0, '00000000-0000-0000-0000-00000000000c', 'infinity'
  FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'foreign';
SELECT p.id AS part FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'foreign' \gset
SELECT pg_temp.failure(format($$SELECT queen.ack(%L, 't', '00000000-0000-0000-0000-00000000000c')$$, :'part'));
SELECT pg_temp.failure(format($$SELECT queen.nack(%L, 't', '00000000-0000-0000-0000-00000000000c')$$, :'part'));
SELECT pg_temp.failure($$SELECT queen.renew('00000000-0000-0000-0000-00000000000c')$$);
SELECT pg_temp.failure($$SELECT queen.pop('foreign', partition => 'p')$$);
SELECT pg_temp.failure($$SELECT queen.lag('foreign')$$);
SELECT pg_temp.failure($$SELECT queen.seek('foreign', '__QUEUE_MODE__', 'infinity')$$);
SELECT queen.delete_queue('foreign');

-- Deleting: the name is free at once.
SELECT queen.delete_queue('turn'), queen.delete_queue('turn') AS again;
SELECT status FROM queen.push('turn', '1', transaction_id => 't1');
SELECT * FROM queen.lag('turn');

TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;
