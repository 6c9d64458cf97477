-- The API for applications: push.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set api :srcdir '/lib/api.sql'
\set ECHO none
\i :segments
\i :api
\set ECHO all
-- The message id is a new one of version 7, and the transaction id where none is given.
SELECT item, message_id::text = transaction_id AS same, status FROM queen.push('q', '{"n": 1}');
SELECT count(*), count(DISTINCT message_id), bool_and(message_id::text ~ '^.{14}7.{4}[89ab]') AS v7,
       bool_and(message_id > before) IS NOT FALSE AS ascending
  FROM (SELECT p.message_id, lag(p.message_id) OVER (ORDER BY p.item) AS before
          FROM queen.push_many('ids', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 5000) AS i)) AS p) AS m;

-- One message, as it lies in the log: the text that jsonb gives, no trace, no subject, not encrypted.
SELECT item, transaction_id, status FROM queen.push('q', '{"b":1.10,"a":[true,null,"\u00fc"]}', 'p', 't');
SELECT f.flags, f.transaction_id, f.trace_id, f.producer_sub, convert_from(f.payload, 'UTF8') AS payload
  FROM queen.log_segments AS s CROSS JOIN LATERAL queen.log_frame(s.blob, 0) AS f
 WHERE s.partition_id = pg_temp.partition_id('q', 'p');
-- The blob's content checksum is on: bit 2 of the frame header.
SELECT get_byte(s.blob, 4) & 4 AS checksum FROM queen.log_segments AS s WHERE s.partition_id = pg_temp.partition_id('q', 'p');

-- Created as a push over HTTP creates: names make the labels, the lease is 60 seconds.
SELECT status FROM queen.push('shop.orders.eu', 'null');
SELECT name, namespace, task, lease_time FROM queen.queues WHERE name = 'shop.orders.eu';

-- Many: one segment per partition and call, order kept, rows in the order of the arguments.
SELECT item, transaction_id, status
  FROM queen.push_many('many', ARRAY['1', '2', '3', '4', '5']::jsonb[], ARRAY['b', 'a', NULL, 'b', 'a'], ARRAY['b1', 'a1', 'd1', 'b2', 'a2']);
SELECT * FROM pg_temp.log('many');
SELECT item, status FROM queen.push_many('many', '{}');
SELECT item, transaction_id, status FROM queen.push_many('many', '[4:5]={"1","2"}', '[0:1]={a,b}', '[7:8]={x,y}');

-- V-10, V-11, V-12: duplicates of earlier calls and of the call itself name the original; the
-- others are stored in their order.
CREATE TEMP TABLE answer AS
SELECT * FROM queen.push_many('many', '{1,2,3,4,5,6}', array_fill('a'::text, ARRAY[6]), '{n1,a2,n2,n1,a1,n3}');
SELECT a.item, a.transaction_id, a.status,
       (SELECT s.base_offset + f FROM queen.log_segments AS s CROSS JOIN generate_series(0, (s.end_offset - s.base_offset)::int) AS f
         WHERE s.partition_id = pg_temp.partition_id('many', 'a') AND (queen.log_frame(s.blob, f)).message_id = a.message_id) AS found_at
  FROM answer AS a ORDER BY a.item;
SELECT * FROM pg_temp.log('many') WHERE partition = 'a';
-- V-14: the same id in two partitions is two messages.
SELECT item, status FROM queen.push_many('many', '{1,2}', '{u,v}', '{same,same}');
-- V-13: with window 0 only the call itself is searched.
SELECT queen.configure('open', '{"dedupWindowSeconds":0}') -> 'dedupWindowSeconds' AS window;
SELECT item, status FROM queen.push_many('open', '{1,2}', NULL, '{t,t}');
SELECT status FROM queen.push('open', '3', transaction_id => 't');
SELECT partition, base_offset, ids FROM pg_temp.log('open');

-- A segment is cut at 10,000 messages and at 8 MiB; a larger message travels alone. Of a segment
-- with duplicates the rest is stored before what follows it.
CREATE FUNCTION pg_temp.push_range(first int, last int) RETURNS TABLE (status text, count bigint)
LANGUAGE sql AS $$
    SELECT p.status, count(*)
      FROM (SELECT array_agg(to_jsonb(i)) AS payloads, array_agg('c' || i) AS ids FROM generate_series(first, last) AS i) AS r
     CROSS JOIN LATERAL queen.push_many('cut', r.payloads, NULL, r.ids) AS p
     GROUP BY p.status ORDER BY p.status;
$$;
SELECT * FROM pg_temp.push_range(1, 10050);
SELECT * FROM pg_temp.push_range(10001, 20101);
SELECT base_offset, end_offset, fault, sidecar, left(ids, 11) AS first FROM pg_temp.log('cut');
SELECT item, status FROM queen.push_many('large', ARRAY[to_jsonb(repeat('x', 5000000)), to_jsonb(repeat('x', 3000000)), to_jsonb(repeat('x', 500000)),
                                                        to_jsonb(repeat('x', 9000000)), '1']);
SELECT base_offset, end_offset, fault, sidecar FROM pg_temp.log('large');

-- Limits, at the edge. Nothing of a refused call is stored, nor is a queue created.
SELECT status FROM queen.push('edge', '1', repeat('p', 255), repeat('t', 65535));
SELECT status FROM queen.push(repeat('ü', 255), '1');
SELECT status FROM queen.push('', '1');
SELECT status FROM queen.push('edge', (repeat('[', 512) || repeat(']', 512))::jsonb);
SELECT status FROM queen.push('edge', to_jsonb(repeat('x', 64 * 1024 * 1024 - 2)));
SELECT base_offset, end_offset, fault FROM pg_temp.log('edge') WHERE partition = 'Default';
SELECT pg_temp.failure(command) FROM (VALUES
    (0, $$SELECT queen.push_many('bad', NULL, '{a}')$$),
    (1, $$SELECT queen.push('bad', '1', '')$$),
    (2, $$SELECT queen.push('bad', '1', repeat('p', 256))$$),
    (3, $$SELECT queen.push('bad', '1', E'p\t')$$),
    (4, $$SELECT queen.push('bad', '1', 'p', '')$$),
    (5, $$SELECT queen.push('bad', '1', 'p', repeat('t', 65536))$$),
    (6, $$SELECT queen.push('bad', '1', 'p', E't\x7f')$$),
    (7, $$SELECT queen.push(repeat('q', 256), '1')$$),
    (8, $$SELECT queen.push(E'bad\n', '1')$$),
    (9, $$SELECT queen.push(NULL, '1')$$),
    (10, $$SELECT queen.push('bad', NULL)$$),
    (11, $$SELECT queen.push_many('bad', NULL)$$),
    (12, $$SELECT queen.push_many('bad', ARRAY['1', NULL]::jsonb[])$$),
    (13, $$SELECT queen.push_many('bad', '{1,2}', '{a}')$$),
    (14, $$SELECT queen.push_many('bad', '{1,2}', NULL, '{a,b,c}')$$),
    (15, $$SELECT queen.push('bad', (repeat('[', 513) || repeat(']', 513))::jsonb)$$),
    (16, $$SELECT queen.push('bad', to_jsonb(repeat('x', 64 * 1024 * 1024 - 1)))$$),
    (17, $$SELECT queen.push_many('bad', '{{1,2},{3,4}}')$$)) AS v (n, command) ORDER BY n;
SELECT count(*) FROM queen.queues WHERE name LIKE 'bad%';

-- Encrypted queues: clear text is not stored, nor can a queue become one here.
UPDATE queen.queues SET encryption_enabled = true WHERE name = 'edge';
SELECT pg_temp.failure($$SELECT queen.push('edge', '1')$$);
SELECT pg_temp.failure($$SELECT queen.pop('edge')$$);
SELECT pg_temp.failure($$SELECT queen.configure('edge2', '{"encryptionEnabled":true}')$$);
SELECT queen.configure('edge', '{"encryptionEnabled":false}') -> 'encryptionEnabled' AS encrypted;

-- Configure: the rules of the other interface.
SELECT queen.configure('edge', '{"leaseTime":7,"retryLimit":null}', 'ns', 'task') @> '{"leaseTime":7,"retryLimit":3}' AS configured;
SELECT namespace, task FROM queen.queues WHERE name = 'edge';
SELECT queen.configure('edge') -> 'leaseTime' AS kept;
SELECT queen.configure('edge', mode => 'replace') -> 'leaseTime' AS reset;
SELECT pg_temp.failure($$SELECT queen.configure('edge', '{"leaseTime":0}')$$);
SELECT pg_temp.failure($$SELECT queen.configure('edge', '[]')$$);
SELECT pg_temp.failure($$SELECT queen.configure(NULL)$$);

-- A rollback leaves nothing: no message, no queue, no partition, no hash, no count.
SELECT last_offset FROM queen.log_partitions WHERE id = pg_temp.partition_id('many', 'b');
BEGIN;
SELECT status FROM queen.push('gone', '1');
SELECT status FROM queen.push('many', '1', 'b', 'gone');
ROLLBACK;
SELECT count(*) FROM queen.queues WHERE name = 'gone';
SELECT last_offset FROM queen.log_partitions WHERE id = pg_temp.partition_id('many', 'b');
-- And so does the rollback of a savepoint; what is around it is kept.
BEGIN;
SELECT status FROM queen.push('many', '1', 'b', 'before');
SAVEPOINT s;
SELECT status FROM queen.push('many', '1', 'b', 'gone');
SELECT status FROM queen.push('many', '1', 'b', 'before');
ROLLBACK TO s;
SELECT status FROM queen.push('many', '1', 'b', 'gone');
COMMIT;
SELECT partition, base_offset, ids FROM pg_temp.log('many') WHERE partition = 'b';

-- Isolation levels that cannot see what the lock's last holder committed are refused.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.failure($$SELECT queen.push('many', '1')$$);
SELECT pg_temp.failure($$SELECT queen.pop('many')$$);
SELECT pg_temp.failure($$SELECT queen.ack(gen_random_uuid(), 't', NULL)$$);
SELECT pg_temp.failure($$SELECT queen.nack(gen_random_uuid(), 't', NULL)$$);
SELECT pg_temp.failure($$SELECT queen.renew(gen_random_uuid())$$);
SELECT pg_temp.failure($$SELECT queen.configure('many')$$);
SELECT pg_temp.failure($$SELECT queen.delete_queue('many')$$);
ROLLBACK;

-- A trigger may push.
CREATE TEMP TABLE orders (id int PRIMARY KEY, total numeric);
CREATE FUNCTION pg_temp.announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queen.push('orders', to_jsonb(new), 'customer', 'order-' || new.id);
    RETURN new;
END
$$;
CREATE TRIGGER announce AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION pg_temp.announce();
INSERT INTO orders VALUES (1, 9.90), (2, 5);
INSERT INTO orders VALUES (3, 1), (2, 5);
SELECT partition, base_offset, ids FROM pg_temp.log('orders');

TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;
