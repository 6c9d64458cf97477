-- Retention: three rules, whole segments from the front, one partition per step.
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
-- Pushes segments of two messages each, the oldest first; every one is the given seconds older
-- than the next.
CREATE FUNCTION pg_temp.fill(queue text, part text, segments int, spacing interval) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. segments LOOP
        PERFORM pg_temp.push(queue, part, VARIADIC ARRAY['m' || 2 * i - 1, 'm' || 2 * i]);
        IF i < segments THEN
            PERFORM pg_temp.age(queue, part, spacing);
        END IF;
    END LOOP;
END
$$;

-- Rule 1: older than retention_seconds, consumed or not. Stops at the first younger segment (V-71).
SELECT pg_temp.configure('q', '{"retentionEnabled": true, "retentionSeconds": 220}');
SELECT pg_temp.fill('q', 'p', 5, '100 seconds');
SELECT * FROM pg_temp.log('q');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.log('q');
SELECT * FROM pg_temp.history('q');
SELECT * FROM pg_temp.due('q');
-- Off is off.
SELECT pg_temp.configure('q', '{"retentionEnabled": false}');
SELECT pg_temp.age('q', 'p', '10 days');
SELECT * FROM pg_temp.retain(2147483647);
SELECT * FROM pg_temp.due('q');

-- Steps: at most max_rows segments each, one history row each (V-72).
SELECT pg_temp.configure('s', '{"retentionEnabled": true, "retentionSeconds": 10}');
SELECT pg_temp.fill('s', 'p', 5, '100 seconds');
SELECT * FROM pg_temp.retain(2);
SELECT * FROM pg_temp.log('s');
SELECT * FROM pg_temp.history('s');

-- Many bytes end a step early.
SELECT pg_temp.fill('s', 'big', 1, '1 second');
UPDATE queen.log_segments SET blob = repeat('x', 9 * 1024 * 1024)::bytea WHERE partition_id = pg_temp.partition_id('s', 'big');
INSERT INTO queen.log_segments SELECT partition_id, 2 * n, 2 * n + 1, created_at, blob
  FROM queen.log_segments, generate_series(1, 3) AS n WHERE partition_id = pg_temp.partition_id('s', 'big');
UPDATE queen.log_partitions SET segments = 4, bytes = 36 * 1024 * 1024, last_offset = 7 WHERE id = pg_temp.partition_id('s', 'big');
SELECT pg_temp.age('s', 'big', '1 day');
SELECT * FROM pg_temp.retain();
SELECT log_start, log, sound FROM pg_temp.log('s') WHERE part = 'big';

-- Rule 2: what all groups have passed (V-70). Nothing goes without a cursor, nothing above any of
-- them, queue mode included, and no segment of which a message is still wanted.
SELECT pg_temp.configure('c', '{"retentionEnabled": true, "completedRetentionSeconds": 50}');
SELECT pg_temp.fill('c', 'p', 5, '100 seconds');
SELECT * FROM pg_temp.retain();
SELECT log FROM pg_temp.log('c');
SELECT ids FROM pg_temp.pop('c', 'p', 'g', mode => 'all', batch => 7, auto => true);
SELECT pg_temp.age('c', 'p', '1 hour');
SELECT * FROM pg_temp.retain();
SELECT log FROM pg_temp.log('c');
SELECT pg_temp.fill('c2', 'p', 5, '100 seconds');
SELECT pg_temp.configure('c2', '{"retentionEnabled": true, "completedRetentionSeconds": 50}');
SELECT ids FROM pg_temp.pop('c2', 'p', 'g', mode => 'all', batch => 9, auto => true);
SELECT ids FROM pg_temp.pop('c2', 'p', batch => 4, auto => true);
SELECT * FROM pg_temp.retain();
SELECT log_start, log FROM pg_temp.log('c2');
SELECT * FROM pg_temp.history('c2');
-- A leased message is not consumed. Once it is, the rule's own age decides.
SELECT ids FROM pg_temp.pop('c2', 'p', batch => 10);
SELECT pg_temp.age('c2', 'p', '1 hour');
SELECT * FROM pg_temp.retain();
SELECT success, released FROM pg_temp.ack('c2', 'p', 1, '{m10}');
SELECT ids FROM pg_temp.pop('c2', 'p', 'g', mode => 'all', auto => true);
SELECT pg_temp.age('c2', 'p', '1 hour');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.log('c2');

-- A group that subscribed counts on a partition that it has not met yet, with the start that its
-- subscription gives it there: from the beginning, or from a time on.
SELECT pg_temp.configure('sub', '{"retentionEnabled": true, "completedRetentionSeconds": 50}');
SELECT pg_temp.fill('sub', 'other', 1, '1 second');
SELECT status FROM pg_temp.pop('sub', grp => 'all', mode => 'all', auto => true);
SELECT status FROM pg_temp.pop('sub', grp => 'since', since => now() - interval '250 seconds', auto => true);
SELECT pg_temp.fill('sub', 'p', 5, '100 seconds');
SELECT count(*) FROM pg_temp.pop('sub', 'p', auto => true);
SELECT * FROM pg_temp.retain();
SELECT log FROM pg_temp.log('sub') WHERE part = 'p';
DELETE FROM queen.consumer_groups_metadata WHERE consumer_group = 'all';
UPDATE queen.log_due SET retention_at = now() WHERE partition_id = pg_temp.partition_id('sub', 'p');
SELECT * FROM pg_temp.retain();
SELECT log FROM pg_temp.log('sub') WHERE part = 'p';
SELECT ids FROM pg_temp.pop('sub', grp => 'since', auto => true);

-- Rule 3: older than max_wait_time_seconds, whatever their state, retention enabled or not; not to
-- the dead letters.
SELECT pg_temp.configure('e', '{"maxWaitTimeSeconds": 250}');
SELECT pg_temp.fill('e', 'p', 5, '100 seconds');
SELECT * FROM pg_temp.retain();
SELECT log_start, log, sound FROM pg_temp.log('e');
SELECT * FROM pg_temp.history('e');
SELECT count(*) FROM queen.log_dlq;

-- All three: the rule that reaches furthest decides what goes. Each step says for which it went,
-- the first that applies.
SELECT pg_temp.configure('x', '{"retentionEnabled": true, "retentionSeconds": 450, "completedRetentionSeconds": 150, "maxWaitTimeSeconds": 250}');
SELECT pg_temp.fill('x', 'p', 6, '100 seconds');
SELECT count(*) FROM pg_temp.pop('x', 'p', batch => 4, auto => true);
SELECT * FROM pg_temp.retain();
SELECT log_start, log, sound FROM pg_temp.log('x');
SELECT * FROM pg_temp.history('x');

-- The lease of a batch whose segments went: the holder's ack works, the next pop starts at the
-- next live segment, and where none is left the cursor comes to the end (M-28, V-27).
SELECT pg_temp.configure('l', '{"retentionEnabled": true, "retentionSeconds": 150}');
SELECT pg_temp.fill('l', 'p', 3, '100 seconds');
SELECT ids FROM pg_temp.pop('l', batch => 2);
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.cursors('l');
SELECT success, error, more FROM pg_temp.ack('l', 'p', 1, '{m2}');
SELECT first, ids FROM pg_temp.pop('l', batch => 2, worker => 2);
SELECT pg_temp.age('l', 'p', '1 day');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.log('l');
SELECT pg_temp.expire('l');
SELECT status FROM pg_temp.pop('l');
SELECT partition, committed, batch_end FROM pg_temp.cursors('l');

-- V-77: dead letters and traces stay.
SELECT pg_temp.configure('d', '{"retryLimit": 0, "maxWaitTimeSeconds": 10}');
SELECT pg_temp.fill('d', 'p', 2, '100 seconds');
SELECT ids FROM pg_temp.pop('d', batch => 1);
SELECT success, dlq FROM pg_temp.ack('d', 'p', 1, '{m1}', '{failed}');
INSERT INTO queen.message_traces (tenant_id, partition_id, transaction_id, consumer_group, data)
VALUES (pg_temp.tenant(), pg_temp.partition_id('d', 'p'), 'm1', 'g', '{}');
SELECT pg_temp.age('d', 'p', '1 day');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.log('d');
SELECT transaction_id, convert_from(payload, 'UTF8') FROM queen.log_dlq;
SELECT count(*) FROM queen.message_traces;

-- V-72: the history of a partition sums up to its log_start.
SELECT q.name, p.name FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
 WHERE p.log_start <> coalesce((SELECT sum(h.messages_deleted) FROM queen.retention_history AS h WHERE h.partition_id = p.id), 0);

SELECT * FROM queen.retention_step(0);
SELECT * FROM queen.retention_step(NULL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM queen.retention_step(1);
ROLLBACK;
