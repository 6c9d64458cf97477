-- Creation of queues and partitions by those who push.
\set tenant '''00000000-0000-0000-0000-000000000001'''
\set other '''00000000-0000-0000-0000-000000000002'''

SELECT protocol, version FROM queen.log_handshake();

-- Namespace and task come from the dotted name; every other option is the column's default, of
-- which only the lease differs from that of configure.
SELECT queen.log_provision(ARRAY[:tenant, :tenant, :tenant, :tenant]::uuid[],
                           ARRAY['shop.orders.eu', 'plain', '', 'shop.orders.eu'],
                           ARRAY['p1', NULL, 'p1', 'p2']);
SELECT q.name, q.namespace, q.task, q.lease_time, p.name AS partition, p.last_offset, p.log_start,
       p.txns_start, p.segments, p.bytes
  FROM queen.queues AS q LEFT JOIN queen.log_partitions AS p ON p.queue_id = q.id
 ORDER BY q.name COLLATE "C", p.name COLLATE "C";
SELECT o.key, o.value, queen.queue_option_defaults() -> o.key AS configure
  FROM queen.queues AS q, jsonb_each(queen.queue_options(q)) AS o
 WHERE q.name = 'plain'
 ORDER BY o.key COLLATE "C";

-- Again: nothing new, and what is there keeps its identity.
CREATE TEMP TABLE before AS SELECT id FROM queen.queues UNION ALL SELECT id FROM queen.log_partitions;
SELECT queen.log_provision(ARRAY[:tenant, :tenant]::uuid[], ARRAY['shop.orders.eu', 'plain'],
                           ARRAY['p1', NULL]);
SELECT count(*) AS rows, count(*) FILTER (WHERE id IN (SELECT id FROM before)) AS kept
  FROM (SELECT id FROM queen.queues UNION ALL SELECT id FROM queen.log_partitions) AS r;

-- A name belongs to its tenant.
SELECT queen.log_provision(ARRAY[:other]::uuid[], ARRAY['plain'], ARRAY['p1']);
SELECT count(*), count(DISTINCT tenant_id) FROM queen.queues WHERE name = 'plain';

-- Bad names are passed over and do not stop their neighbours.
SELECT queen.log_provision(ARRAY[:tenant, :tenant, :tenant, :tenant, NULL, :tenant, :tenant]::uuid[],
                           ARRAY[E'bad\x1f', repeat('x', 256), NULL, 'good', 'nobody', 'good', 'good'],
                           ARRAY['p', 'p', 'p', 'fine', 'p', '', repeat('y', 256)]);
SELECT q.name, p.name
  FROM queen.queues AS q LEFT JOIN queen.log_partitions AS p ON p.queue_id = q.id
 WHERE q.name NOT IN ('shop.orders.eu', 'plain', '')
 ORDER BY 1, 2;
SELECT queen.log_provision(ARRAY[:tenant]::uuid[], ARRAY[repeat('ü', 255)], ARRAY[repeat('€', 255)]);
SELECT length(q.name), length(namespace), length(task), length(p.name)
  FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id
 WHERE q.name LIKE 'ü%';

-- Arguments.
\set SHOW_CONTEXT never
SELECT queen.log_provision('{}', '{}', '{}');
SELECT queen.log_provision(ARRAY[:tenant]::uuid[], ARRAY['a', 'b'], ARRAY['p']);
SELECT queen.log_provision(ARRAY[:tenant]::uuid[], NULL, ARRAY['p']);
\set VERBOSITY sqlstate
SELECT queen.log_provision(ARRAY[:tenant]::uuid[], NULL, ARRAY['p']);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT queen.log_provision('{}', '{}', '{}');
ROLLBACK;
\set VERBOSITY default

SET client_min_messages = warning;
TRUNCATE queen.queues CASCADE;
