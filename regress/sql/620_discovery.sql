-- Discovery: pops by namespace and task, where groups start, fairness, and what retention owes them.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE FUNCTION pg_temp.discover_rows(namespace text, task text, grp text DEFAULT 'g', worker int DEFAULT 1,
                                      batch int DEFAULT 10, partitions int DEFAULT 0, lease int DEFAULT NULL,
                                      auto boolean DEFAULT false, mode text DEFAULT NULL, since timestamptz DEFAULT NULL,
                                      tenant uuid DEFAULT pg_temp.tenant())
RETURNS TABLE (entry int, status text, partition_id uuid, partition text, base_offset bigint,
               end_offset bigint, first_offset bigint, last_offset bigint, created_at timestamptz,
               attempt int, blob bytea, retry_at timestamptz, error text, queue_id uuid)
LANGUAGE sql AS $$
    SELECT * FROM queen.log_discover(tenant, namespace, task, grp, pg_temp.worker(worker), batch, partitions, lease,
                                     auto, false, mode, since);
$$;
CREATE FUNCTION pg_temp.discover(namespace text, task text, grp text DEFAULT 'g', worker int DEFAULT 1,
                                 batch int DEFAULT 10, partitions int DEFAULT 0, lease int DEFAULT NULL,
                                 auto boolean DEFAULT false, mode text DEFAULT NULL, since timestamptz DEFAULT NULL)
RETURNS TABLE (status text, ids text)
LANGUAGE sql AS $$
    SELECT r.status,
           (SELECT string_agg((queen.log_frame(r.blob, (o - r.base_offset)::int)).transaction_id, ' ' ORDER BY o)
              FROM generate_series(r.first_offset, r.last_offset) AS o)
      FROM pg_temp.discover_rows(namespace, task, grp, worker, batch, partitions, lease, auto, mode, since) AS r
     ORDER BY 2;
$$;
CREATE FUNCTION pg_temp.label(queue text, namespace text, task text) RETURNS boolean
LANGUAGE sql AS $$ SELECT queen.log_configure(pg_temp.tenant(), queue, namespace, task, '{}', 'merge') IS NOT NULL; $$;

-- V-30: queues that only ever got pushes are found, by namespace, by task, by both.
SELECT (pg_temp.push('shop.orders', 'p', 'so')).status;
SELECT (pg_temp.push('shop.mails', 'p', 'sm')).status;
SELECT (pg_temp.push('blog.mails', 'p', 'bm')).status;
SELECT (pg_temp.push('plain', 'p', 'pl')).status;
SELECT * FROM pg_temp.discover('shop', '', mode => 'all');
SELECT * FROM pg_temp.discover('', 'mails', 'task', mode => 'all');
SELECT * FROM pg_temp.discover('shop', 'mails', 'both', mode => 'all');
SELECT * FROM pg_temp.discover('nowhere', '', mode => 'all');
SELECT * FROM pg_temp.discover('plain', '', mode => 'all');
-- They are leased like others; acknowledged, they do not come again.
SELECT * FROM pg_temp.discover('shop', '', worker => 2);
SELECT success FROM pg_temp.ack('shop.orders', 'p', 1, '{so}', grp => 'g');
SELECT pg_temp.expire('shop.mails');
SELECT * FROM pg_temp.discover('shop', '', worker => 2);
-- Queue mode.
SELECT * FROM pg_temp.discover('shop', '', '__QUEUE_MODE__', mode => 'new', auto => true);

-- The subscription to the labels, and to each queue that was met.
SELECT m.consumer_group, q.name AS queue, m.namespace, m.task, m.subscription_mode
  FROM queen.consumer_groups_metadata AS m LEFT JOIN queen.queues AS q ON q.id = m.queue_id
 ORDER BY m.consumer_group COLLATE "C", q.name COLLATE "C" NULLS FIRST, m.namespace;

-- V-33: new means after the first look, in queues and partitions that are made later, too.
SELECT * FROM pg_temp.discover('shop', '', 'late', mode => 'new');
SELECT (pg_temp.push('shop.orders', 'p', 'so2')).status;
SELECT (pg_temp.push('shop.orders', 'later', 'so3')).status;
SELECT (pg_temp.push('shop.later', 'p', 'sl')).status;
SELECT * FROM pg_temp.discover('shop', '', 'late', mode => 'all', since => 'epoch');
-- A time: from the first segment stamped then, everywhere.
SELECT pg_temp.age('shop.orders', 'p', '1 day'), pg_temp.age('shop.mails', 'p', '3 days');
SELECT * FROM pg_temp.discover('shop', '', 'since', since => now() - interval '2 days');
-- V-36: a queue that the group had met keeps its cursor and its subscription.
SELECT ids FROM pg_temp.pop('blog.mails', grp => 'v36', mode => 'new');
SELECT * FROM pg_temp.discover('blog', '', 'v36', mode => 'all');
SELECT subscription_mode FROM queen.consumer_groups_metadata WHERE consumer_group = 'v36' ORDER BY 1;

-- The lease: each queue's own, or that of the request (L-17).
SELECT queen.log_configure(pg_temp.tenant(), 'lease.a', 'lease', '', '{"leaseTime": 1000}', 'merge') IS NOT NULL;
SELECT queen.log_configure(pg_temp.tenant(), 'lease.b', 'lease', '', '{"leaseTime": 5000}', 'merge') IS NOT NULL;
SELECT (pg_temp.push('lease.a', 'p', 'a')).status, (pg_temp.push('lease.b', 'p', 'b')).status;
CREATE VIEW pg_temp.leases AS
SELECT q.name, c.consumer_group, round(extract(epoch FROM c.lease_expires_at - c.lease_acquired_at)) AS seconds
  FROM queen.log_consumers AS c JOIN queen.log_partitions AS p ON p.id = c.partition_id
  JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.namespace = 'lease' ORDER BY 2, 1;
SELECT ids FROM pg_temp.discover('lease', '', 'own', mode => 'all');
SELECT ids FROM pg_temp.discover('lease', '', 'given', lease => 77, mode => 'all');
SELECT * FROM pg_temp.leases;
-- What is leased is told: when to look again.
SELECT status, retry_at BETWEEN now() + interval '900 seconds' AND now() + interval '1001 seconds' AS first_end, queue_id
  FROM pg_temp.discover_rows('lease', '', 'own');

-- Batch and partitions count over all queues.
SELECT count(*) FROM generate_series(1, 4) AS i, pg_temp.push('n.q' || i, 'p', 'a', 'b', 'c') AS a, pg_temp.push('n.q' || i, 'o', 'd', 'e', 'f') AS b;
SELECT sum(last_offset - first_offset + 1), count(DISTINCT partition_id) FROM pg_temp.discover_rows('n', '', 'batch', batch => 7);
SELECT sum(last_offset - first_offset + 1), count(DISTINCT partition_id) FROM pg_temp.discover_rows('n', '', 'one', partitions => 1);
SELECT sum(last_offset - first_offset + 1), count(DISTINCT partition_id) FROM pg_temp.discover_rows('n', '', 'three', batch => 100, partitions => 3);
SELECT sum(last_offset - first_offset + 1), count(DISTINCT partition_id) FROM pg_temp.discover_rows('n', '', 'all', batch => 100);
-- Rows of one partition come together, in order.
SELECT bool_and(first_offset > before) FROM (
    SELECT first_offset, lag(last_offset, 1, -1) OVER (PARTITION BY partition_id ORDER BY n) AS before
      FROM pg_temp.discover_rows('n', '', 'order', batch => 100) WITH ORDINALITY AS r (entry, status, partition_id, partition,
           base_offset, end_offset, first_offset, last_offset, created_at, attempt, blob, retry_at, error, queue_id, n)) AS o;

-- V-31: each queue has its turn, however much the others hold.
SELECT count(*) FROM generate_series(1, 250) AS i, pg_temp.push('fair.rich', 'p', 'r' || i);
SELECT count(*) FROM generate_series(1, 3) AS i, pg_temp.push('fair.poor' || i, 'p', 'a');
CREATE FUNCTION pg_temp.all_seen() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    seen text[] := '{}';
BEGIN
    FOR i IN 1..200 LOOP
        seen := seen || ARRAY(SELECT q.name::text FROM pg_temp.discover_rows('fair', '', 'v31', batch => 1, auto => true) AS r
                                JOIN queen.log_partitions AS p ON p.id = r.partition_id JOIN queen.queues AS q ON q.id = p.queue_id);
        EXIT WHEN seen @> '{fair.rich,fair.poor1,fair.poor2,fair.poor3}';
    END LOOP;
    RETURN seen @> '{fair.rich,fair.poor1,fair.poor2,fair.poor3}';
END
$$;
SELECT pg_temp.all_seen();

-- Deleting the group ends the subscription to the labels as well; from one queue it does not.
SELECT deleted FROM queen.log_delete_group(pg_temp.tenant(), 'late', 'shop.later', true, NULL, 100);
SELECT count(*) FILTER (WHERE queue_id IS NULL) AS labels, count(queue_id) AS queues
  FROM queen.consumer_groups_metadata WHERE consumer_group = 'late';
SELECT ids FROM pg_temp.discover('shop', '', 'late');
DO $$
DECLARE
    resume jsonb;
BEGIN
    LOOP
        SELECT next INTO resume FROM queen.log_delete_group(pg_temp.tenant(), 'late', NULL, true, resume, 100);
        EXIT WHEN resume IS NULL;
    END LOOP;
END
$$;
SELECT count(*) FROM queen.consumer_groups_metadata WHERE consumer_group = 'late';
SELECT status, ids FROM pg_temp.discover('shop', '', 'late', mode => 'new');

-- Retention by completion waits for a group that subscribed to the labels, though it has not met the queue.
TRUNCATE queen.queues CASCADE;
SELECT status FROM pg_temp.discover('keep', '', 'labels', mode => 'all');
SELECT (pg_temp.push('keep.q', 'p', 'a', 'b')).status;
SELECT ids FROM pg_temp.pop('keep.q', grp => 'fast', auto => true, mode => 'all');
SELECT queen.log_completed(p) FROM queen.log_partitions AS p WHERE p.id = pg_temp.partition_id('keep.q', 'p');
SELECT status FROM pg_temp.discover('other', '', 'elsewhere', mode => 'all');
SELECT ids FROM pg_temp.discover('keep', '', 'labels', auto => true);
SELECT queen.log_completed(p) FROM queen.log_partitions AS p WHERE p.id = pg_temp.partition_id('keep.q', 'p');
-- One that starts later counts from there; another tenant's does not count.
SELECT (pg_temp.push('keep.r', 'p', 'a', 'b')).status;
SELECT ids FROM pg_temp.pop('keep.r', grp => 'fast', auto => true, mode => 'all');
SELECT deleted FROM queen.log_delete_group(pg_temp.tenant(), 'labels', NULL, true, NULL, 100);
SELECT status FROM pg_temp.discover('', 'none', 'labels', mode => 'all');
INSERT INTO queen.consumer_groups_metadata (tenant_id, consumer_group, namespace, subscription_mode, subscription_timestamp)
VALUES ('00000000-0000-0000-0000-000000000002', 'foreign', 'keep', 'all', 'epoch'), (pg_temp.tenant(), 'new', 'keep', 'new', now());
SELECT queen.log_completed(p) FROM queen.log_partitions AS p WHERE p.id = pg_temp.partition_id('keep.r', 'p');

-- V-96: nothing of another tenant.
SELECT r.status, r.error FROM pg_temp.discover_rows('keep', '', mode => 'all', tenant => '00000000-0000-0000-0000-000000000002') AS r;

-- What is no discovery.
SELECT status, error FROM pg_temp.discover_rows('', '');
SELECT status, error FROM pg_temp.discover_rows(NULL, 'x');
SELECT status, error FROM pg_temp.discover_rows(repeat('x', 256), '');
SELECT status, error FROM pg_temp.discover_rows('', E'a\nb');
SELECT status, error FROM pg_temp.discover_rows('keep', '', grp => '');
SELECT status, error FROM pg_temp.discover_rows('keep', '', batch => 0);
SELECT status, error FROM pg_temp.discover_rows('keep', '', mode => 'some');
SELECT status, error FROM pg_temp.discover_rows('keep', '', lease => 86401);
-- Names of 255 characters of four bytes, which do not compress, everywhere.
SELECT string_agg(chr(65536 + (i * 7919) % 60000), '') AS long FROM generate_series(1, 255) AS i \gset
SELECT pg_temp.label('long', :'long', :'long');
SELECT (pg_temp.push('long', 'p', 'a')).status;
SELECT ids FROM pg_temp.discover(:'long', :'long', :'long', mode => 'all');
