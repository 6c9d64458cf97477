-- The API for applications: pop.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set api :srcdir '/lib/api.sql'
\set ECHO none
\i :segments
\i :api
\set ECHO all
SELECT count(*) FROM queen.push_many('q', '{10,11,12,13,14}', '{a,a,a,b,b}', '{a0,a1,a2,b0,b1}');

-- One row per message, in order; one partition and one message unless said otherwise.
SELECT transaction_id, payload, payload_text, partition, message_offset, attempt, consumer_group, trace_id, producer_sub,
       partition_id = pg_temp.partition_id('q', 'a') AS partition_id, lease_id IS NOT NULL AS leased, created_at <= clock_timestamp() AS stamped
  FROM queen.pop('q', partition => 'a');
SELECT count(*) FROM queen.pop('q', partition => 'a');
SELECT transaction_id, payload, partition, message_offset FROM queen.pop('q', 'g', batch => 10, partitions => 0, subscription_mode => 'all') ORDER BY partition, message_offset;
SELECT count(DISTINCT partition) FROM queen.pop('q', 'h', batch => 10, subscription_mode => 'all');
SELECT count(DISTINCT partition) FROM queen.pop('q', 'h', batch => 10);
SELECT count(*) FROM queen.pop('q', 'h', batch => 10);
-- One call is one lease, and every call another one.
SELECT count(DISTINCT l) FROM (SELECT lease_id AS l FROM queen.pop('q', 'i', batch => 10, partitions => 0, subscription_mode => 'all')) AS x;
SELECT count(DISTINCT worker_id), count(*) FROM queen.log_consumers;

-- V-24: the length of a lease.
SELECT consumer_group, extract(epoch FROM lease_expires_at - lease_acquired_at)::int AS seconds FROM queen.log_consumers
 WHERE partition_id = pg_temp.partition_id('q', 'a') AND consumer_group = 'g';
SELECT count(*) FROM queen.pop('q', 'j', 'a', lease_seconds => 5, subscription_mode => 'all');
SELECT extract(epoch FROM lease_expires_at - lease_acquired_at)::int AS seconds FROM queen.log_consumers WHERE consumer_group = 'j';

-- V-33: a group starts with what is pushed after its first pop, or where the pop says.
SELECT count(*) FROM queen.pop('q', 'late', batch => 10, partitions => 0);
SELECT count(*) FROM queen.push_many('q', '{15,20}', '{a,c}', '{a3,c0}');
SELECT transaction_id FROM queen.pop('q', 'late', batch => 10, partitions => 0) ORDER BY 1;
SELECT min(created_at) AS since FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('q', 'c') \gset
SELECT transaction_id FROM queen.pop('q', 'timed', batch => 10, partitions => 0, subscription_from => :'since') ORDER BY 1;

-- V-25: with auto_ack there is no lease, and nothing to acknowledge.
SELECT transaction_id, lease_id, message_offset FROM queen.pop('q', 'auto', 'a', batch => 3, auto_ack => true, subscription_mode => 'all');
SELECT committed, worker_id, batch_end FROM queen.log_consumers WHERE consumer_group = 'auto';

-- A rollback gives everything back: the lease, the cursor, the subscription.
BEGIN;
SELECT transaction_id FROM queen.pop('q', 'auto', 'a', auto_ack => true);
SELECT count(*) FROM queen.pop('q', 'never', 'a', subscription_mode => 'all');
SAVEPOINT s;
SELECT count(*) FROM queen.pop('q', 'auto', 'b', subscription_mode => 'all');
ROLLBACK TO s;
SELECT count(*) FROM queen.pop('q', 'auto', 'b', subscription_mode => 'all');
ROLLBACK;
SELECT consumer_group, committed, worker_id FROM queen.log_consumers WHERE consumer_group IN ('auto', 'never');
SELECT transaction_id FROM queen.pop('q', 'auto', 'a', auto_ack => true);

-- What a transaction has pushed it may pop; the rollback takes both.
BEGIN;
SELECT status FROM queen.push('own', '1', 'p', 'mine');
SELECT transaction_id, payload FROM queen.pop('own', partition => 'p', auto_ack => true);
SELECT count(*) FROM queen.pop('own', partition => 'p');
ROLLBACK;
SELECT count(*) FROM queen.queues WHERE name = 'own';

-- Q-21: a pop of any partition creates the queue, a pop of a named one does not.
SELECT count(*) FROM queen.pop('made');
SELECT count(*) FROM queen.queues WHERE name = 'made';
SELECT pg_temp.failure($$SELECT queen.pop('unmade', partition => 'p')$$);
SELECT count(*) FROM queen.pop('q', partition => 'unknown');
SELECT count(*) FROM queen.queues WHERE name = 'unmade';
SELECT count(*) FROM queen.log_partitions WHERE name = 'unknown';

SELECT pg_temp.failure(command) FROM (VALUES
    (1, $$SELECT queen.pop(NULL)$$),
    (2, $$SELECT queen.pop(repeat('q', 256))$$),
    (3, $$SELECT queen.pop('q', '')$$),
    (4, $$SELECT queen.pop('q', repeat('g', 256))$$),
    (5, $$SELECT queen.pop('q', partition => '')$$),
    (6, $$SELECT queen.pop('q', batch => 0)$$),
    (7, $$SELECT queen.pop('q', batch => 10001)$$),
    (8, $$SELECT queen.pop('q', batch => NULL)$$),
    (9, $$SELECT queen.pop('q', lease_seconds => 86401)$$),
    (10, $$SELECT queen.pop('q', partitions => NULL)$$),
    (11, $$SELECT queen.pop('q', auto_ack => NULL)$$),
    (12, $$SELECT queen.pop('q', subscription_mode => 'old')$$)) AS v (n, command) ORDER BY n;

-- Payloads that jsonb cannot hold come as text, and block nobody.
SELECT count(*) FROM (SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{odd}', '{p}')) AS p
 CROSS JOIN LATERAL (
       SELECT string_agg(pg_temp.frame(convert_to('odd' || n, 'UTF8'), f, md5(f)::uuid), '' ORDER BY n) AS raw,
              string_agg(queen.log_hash('odd' || n), '' ORDER BY n) AS hashes, count(*)::int AS frames
         FROM (VALUES (1, '{"a": 1, "a": 2}'::bytea), (2, '"\\u0000"'), (3, '1e400000'), (4, '-0'), (5, ''), (6, '["\\ud83d\\ude00"]'),
                      (7, '123456789012345678901234567890.10'), (8, decode('22ff22', 'hex')), (9, ('{"' || repeat('k', 300000) || '":null}')::bytea)) AS v (n, f)) AS s
 CROSS JOIN LATERAL queen.log_push(ARRAY[pg_temp.tenant()], '{odd}', '{p}', ARRAY[s.frames], ARRAY[s.hashes], ARRAY[pg_temp.segment(s.raw)], true);
SELECT transaction_id, left(payload::text, 40) AS payload, payload_text FROM queen.pop('odd', batch => 9);

-- V-93: a corrupt segment is set aside. At the head of a batch it is passed, behind other messages
-- the batch ends before it.
SET client_min_messages = error;
SELECT count(*) FROM (SELECT queen.push('bad', to_jsonb(n), 'p', 'm' || n) FROM generate_series(0, 4) AS n) AS p;
UPDATE queen.log_segments SET blob = set_byte(blob, 20, get_byte(blob, 20) # 255) WHERE partition_id = pg_temp.partition_id('bad', 'p') AND base_offset IN (0, 3);
SELECT transaction_id FROM queen.pop('bad', batch => 10);
SELECT committed, batch_end FROM queen.log_consumers WHERE partition_id = pg_temp.partition_id('bad', 'p');
SELECT count(*) FROM (SELECT queen.ack(partition_id, 'm2', worker_id) FROM queen.log_consumers WHERE partition_id = pg_temp.partition_id('bad', 'p')) AS a;
SELECT transaction_id, attempt FROM queen.pop('bad', batch => 10);
SELECT transaction_id FROM queen.pop('bad', 'auto', batch => 10, auto_ack => true, subscription_mode => 'all');
SELECT transaction_id, payload_text, consumer_group, replace(error, pg_temp.partition_id('bad', 'p')::text, 'PARTITION') LIKE 'corrupt segment %..% of partition PARTITION: %' AS error
  FROM queen.dead_letters('bad');
-- When there is nothing else, the pop looks further.
SELECT status FROM queen.push('bad', '1', 'r', 'r0');
SELECT status FROM queen.push('bad', '1', 'r', 'r1');
UPDATE queen.log_segments SET blob = '\x00' WHERE partition_id = pg_temp.partition_id('bad', 'r') AND base_offset = 0;
SELECT transaction_id FROM queen.pop('bad', 'one', 'r', subscription_mode => 'all');
SELECT transaction_id FROM queen.pop('bad', 'one', 'r');
SET client_min_messages = warning;

-- Lag, by group; the leased ones count.
SELECT * FROM queen.lag('bad');
SELECT * FROM queen.lag('bad', 'auto');
SELECT * FROM queen.lag('bad', 'nobody');
SELECT pg_temp.failure($$SELECT queen.lag('nothing')$$);

TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;
