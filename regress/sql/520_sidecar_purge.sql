-- Sidecar purge: a hash lives as long as deduplication, completed retention and acks may ask for it.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set maintain :srcdir '/lib/maintain.sql'
\set ECHO none
\i :segments
\i :consume
\i :maintain
\set ECHO all
\set SHOW_CONTEXT never
-- V-73: max(window, completed retention, 900 s), the latter whether retention is enabled or not.
-- Only txns_start moves, and no history is written.
SELECT pg_temp.configure('short', '{"dedupWindowSeconds": 0}');
SELECT pg_temp.configure('window', '{"dedupWindowSeconds": 5000}');
SELECT pg_temp.configure('completed', '{"dedupWindowSeconds": 10, "completedRetentionSeconds": 7000}');
CREATE TEMP TABLE q AS SELECT unnest('{short,window,completed}'::text[]) AS queue, unnest('{900,5000,7000}'::int[]) AS life;
DO $$
BEGIN
    PERFORM pg_temp.push(queue, 'p', 'a', 'b') FROM q;
    PERFORM pg_temp.age(queue, 'p', '100 seconds') FROM q;
    PERFORM pg_temp.push(queue, 'p', 'c') FROM q;
    PERFORM pg_temp.age(queue, 'p', life * interval '1 second' - interval '150 seconds') FROM q;
END
$$;
SELECT * FROM pg_temp.purge();
SELECT pg_temp.age(queue, 'p', '100 seconds') FROM q;
SELECT * FROM pg_temp.purge(2147483647);
SELECT q.queue, l.log_start, l.log, l.txns_start, l.sidecar, l.sound FROM q, pg_temp.log(q.queue) AS l;
SELECT count(*) FROM queen.retention_history;

-- M-31: the purged id is neither a duplicate nor known to an ack without a
-- lease; the one that stays is both.
SELECT status FROM pg_temp.push('window', 'p', 'a');
SELECT status FROM pg_temp.push('window', 'p', 'c');
SELECT ids FROM pg_temp.pop('completed', auto => true);
SELECT id, success, error, noop FROM pg_temp.ack('completed', 'p', NULL, '{a,c}');

-- Steps: at most max_rows each, until the sidecar is empty; the log stays.
SELECT pg_temp.age(queue, 'p', '1 day') FROM q WHERE queue = 'short';
DO $$
BEGIN
    FOR i IN 1 .. 5 LOOP
        PERFORM pg_temp.push('steps', 'p', 'm' || i);
    END LOOP;
END
$$;
SELECT pg_temp.age('steps', 'p', '1 day');
SELECT * FROM pg_temp.purge(2);
SELECT * FROM pg_temp.log('steps');
SELECT * FROM pg_temp.due('steps');

-- The log may be shorter than the sidecar and longer (S-17).
SELECT pg_temp.configure('steps', '{"maxWaitTimeSeconds": 10}');
SELECT status FROM pg_temp.push('steps', 'p', 'm6');
SELECT pg_temp.age('steps', 'p', '100 seconds');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.log('steps');

-- A transaction that was invisible to the walk after a change of options left an old due time, or
-- none: the purge puts it right.
SELECT pg_temp.configure('late', '{"maxWaitTimeSeconds": 4400}');
SELECT status FROM pg_temp.push('late', 'p', 'm1');
SELECT pg_temp.age('late', 'p', '3700 seconds');
UPDATE queen.log_due SET retention_at = NULL WHERE partition_id = pg_temp.partition_id('late', 'p');
SELECT * FROM pg_temp.due('late');
SELECT * FROM pg_temp.purge();
SELECT * FROM pg_temp.due('late');
SELECT status FROM pg_temp.push('late', 'p', 'm2');
SELECT pg_temp.age('late', 'p', '3700 seconds');
UPDATE queen.log_due SET retention_at = now() + interval '1 day' WHERE partition_id = pg_temp.partition_id('late', 'p');
SELECT * FROM pg_temp.purge();
SELECT * FROM pg_temp.due('late');

SELECT * FROM queen.sidecar_purge_step(0);
