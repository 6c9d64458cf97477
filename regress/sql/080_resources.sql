-- Listings: counters by offset arithmetic, options, and what a tenant sees.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
-- Ids, times and bytes replaced by what is known about them.
CREATE FUNCTION pg_temp.still(v jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE jsonb_typeof(v)
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(key, CASE
                WHEN key = 'id' THEN to_jsonb(value #>> '{}' ~ '^[0-9a-f-]{36}$')
                WHEN key IN ('createdAt', 'oldestMessage', 'newestMessage') AND value <> 'null'
                    THEN to_jsonb(value #>> '{}' ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
                ELSE pg_temp.still(value) END), '{}') FROM jsonb_each(v))
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(pg_temp.still(value) ORDER BY n), '[]')
                             FROM jsonb_array_elements(v) WITH ORDINALITY AS e (value, n))
        ELSE v END;
$$;
CREATE FUNCTION pg_temp.stats(queue text) RETURNS TABLE (partition text, total jsonb, pending jsonb,
    processing jsonb, completed jsonb, failed jsonb, letters jsonb)
LANGUAGE sql AS $$
    SELECT p ->> 'name', s -> 'total', s -> 'pending', s -> 'processing', s -> 'completed', s -> 'failed',
           s -> 'deadLetter'
      FROM jsonb_array_elements(queen.log_queue(pg_temp.tenant(), queue) -> 'partitions'
               || jsonb_build_array(jsonb_build_object('stats',
                      queen.log_queue(pg_temp.tenant(), queue) -> 'totals'))) WITH ORDINALITY AS e (p, n),
           LATERAL (SELECT p -> 'stats') AS x (s)
     ORDER BY n;
$$;

SELECT queen.log_queues(pg_temp.tenant());
SELECT queen.log_queue(pg_temp.tenant(), 'shop.orders') IS NULL AS unknown;

SELECT queen.log_provision(ARRAY[pg_temp.tenant(), '00000000-0000-0000-0000-000000000002'],
                           '{empty,other}', '{NULL,p}');
SELECT (pg_temp.push('shop.orders', 'b', 'a', 'b', 'c')).status;
SELECT (pg_temp.push('shop.orders', 'b', 'd', 'e')).status;
SELECT (pg_temp.push('shop.orders', 'a', 'a')).status;
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{shop.orders}', '{c}');

SELECT jsonb_pretty(pg_temp.still(queen.log_queues(pg_temp.tenant())));
SELECT jsonb_pretty(pg_temp.still(queen.log_queue(pg_temp.tenant(), 'shop.orders')));
SELECT r ->> 'oldestMessage' = queen.wire_time(min(s.created_at)) AS oldest,
       r ->> 'newestMessage' = queen.wire_time(max(s.created_at)) AS newest
  FROM queen.log_segments AS s, jsonb_path_query(queen.log_queue(pg_temp.tenant(), 'shop.orders'),
                                                 '$.partitions[*] ? (@.name == "b")') AS r
 WHERE s.partition_id = pg_temp.partition_id('shop.orders', 'b') GROUP BY r;

-- Nobody consumed: all is pending.
SELECT * FROM pg_temp.stats('shop.orders');
-- Queue mode counts while there is no named group; then the slowest named group does.
SELECT pg_temp.partition_id('shop.orders', 'b') AS b \gset
INSERT INTO queen.log_consumers (partition_id, consumer_group, committed) VALUES (:'b', '__QUEUE_MODE__', 3);
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
INSERT INTO queen.log_consumers (partition_id, consumer_group, committed) VALUES (:'b', 'fast', 4), (:'b', 'slow', 1);
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
UPDATE queen.log_consumers SET committed = 0 WHERE consumer_group = '__QUEUE_MODE__';
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
-- Processing: what live leases hold, at most what is pending.
UPDATE queen.log_consumers SET batch_end = 2, worker_id = gen_random_uuid(), lease_expires_at = now() + interval '1 hour'
 WHERE consumer_group = 'slow';
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
UPDATE queen.log_consumers SET batch_end = 4, worker_id = gen_random_uuid(), lease_expires_at = now() + interval '1 hour'
 WHERE consumer_group = '__QUEUE_MODE__';
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
UPDATE queen.log_consumers SET lease_expires_at = now() - interval '1 hour' WHERE batch_end IS NOT NULL;
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
-- Dead letters are not completed messages.
INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", error) VALUES (:'b', 'slow', 0, 'e');
SELECT * FROM pg_temp.stats('shop.orders');
-- What retention deleted is neither pending nor there.
DELETE FROM queen.log_segments WHERE partition_id = :'b' AND base_offset = 0;
UPDATE queen.log_partitions SET log_start = 3, segments = 1 WHERE id = :'b';
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
DELETE FROM queen.log_segments WHERE partition_id = :'b';
UPDATE queen.log_partitions SET log_start = 5, segments = 0, bytes = 0 WHERE id = :'b';
SELECT * FROM pg_temp.stats('shop.orders') WHERE partition = 'b';
SELECT r -> 'oldestMessage' AS oldest, r -> 'newestMessage' AS newest
  FROM jsonb_path_query(queen.log_queue(pg_temp.tenant(), 'shop.orders'), '$.partitions[*] ? (@.name == "b")') AS r;

-- A group that subscribed counts before it has read anything: not what was there, then what comes.
SELECT (pg_temp.push('late', 'p', 'a', 'b', 'c')).status;
SELECT partition, pending FROM pg_temp.stats('late') WHERE partition = 'p';
SELECT status FROM pg_temp.pop('late', grp => 'late', mode => 'new');
DELETE FROM queen.log_consumers WHERE consumer_group = 'late';
SELECT partition, pending FROM pg_temp.stats('late') WHERE partition = 'p';
SELECT (pg_temp.push('late', 'p', 'd')).status;
SELECT partition, pending FROM pg_temp.stats('late') WHERE partition = 'p';
SELECT queen.log_delete_queue(pg_temp.tenant(), 'late');

-- Bytes and segments come from the partition rows: a listing does not touch the segments.
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT queen.log_queues(pg_temp.tenant()) -> 'queues' -> 1 -> 'retainedBytes' = to_jsonb(sum(bytes)) AS bytes
  FROM queen.log_partitions WHERE queue_id = (SELECT id FROM queen.queues WHERE name = 'shop.orders');
SELECT seq_scan, idx_scan FROM pg_stat_xact_user_tables WHERE relid = 'queen.log_segments'::regclass;
ROLLBACK;

-- A deleted queue is not listed.
SELECT queen.log_delete_queue(pg_temp.tenant(), 'shop.orders');
SELECT jsonb_path_query_array(queen.log_queues(pg_temp.tenant()), '$.queues[*].name');
SELECT jsonb_path_query_array(queen.log_queues('00000000-0000-0000-0000-000000000002'), '$.queues[*].name');
SELECT queen.log_queue('00000000-0000-0000-0000-000000000002', 'empty') IS NULL AS not_theirs;

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;
