-- History: what the counters of a queue gained in an interval.
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
TRUNCATE queen.queue_history, queen.queue_history_base;
CREATE FUNCTION pg_temp.interval_is_over() RETURNS void LANGUAGE sql AS $$
    UPDATE queen.queue_history_base SET taken_at = taken_at - interval '1 minute';
$$;
CREATE VIEW pg_temp.latest AS
    SELECT q.name, h.pushes, h.push_messages AS messages, h.push_bytes > 0 AS bytes, h.duplicates AS dup,
           h.pops, h.empty_pops AS empty, h.pop_messages AS popped, h.leases, h.leases_expired AS expired,
           h.acks_completed AS completed, h.acks_failed AS failed, h.acks_retried AS retried, h.dead_letters AS dead,
           h.acks_dropped AS dropped, h.retention_messages AS retained, h.lag, h.parked
      FROM queen.queue_history AS h JOIN queen.queues AS q ON q.id = h.queue_id
     WHERE h.ended_at = (SELECT max(ended_at) FROM queen.queue_history)
     ORDER BY q.name COLLATE "C";

-- The first step takes all that was counted.
SELECT status FROM pg_temp.push('h', 'p', 'a', 'b', 'c');
SELECT status FROM pg_temp.push('h', 'p', 'd');
SELECT status FROM pg_temp.push('h', 'p', 'd');
SELECT status FROM pg_temp.push('other', 'p', 'x');
SELECT ids FROM pg_temp.pop('h', batch => 3);
SELECT success FROM pg_temp.ack('h', 'p', 1, '{a,b}', '{completed,failed}');
SELECT rows, more FROM queen.history_step(100);
SELECT * FROM pg_temp.latest;

-- A step that comes too soon leaves it to the next.
SELECT ids FROM pg_temp.pop('h', batch => 1);
SELECT rows FROM queen.history_step(100);
SELECT success FROM pg_temp.ack('h', 'p', 1, '{b}', '{dlq}');
SELECT status FROM pg_temp.pop('h', grp => 'g', auto => true);
SELECT status FROM pg_temp.pop('h', grp => 'g', auto => true);
SELECT pg_temp.interval_is_over();
SELECT rows FROM queen.history_step(100);
SELECT * FROM pg_temp.latest;
-- Idle queues have no row, and when they wake up their row begins with the last step, or
-- with the counters.
SELECT pg_temp.interval_is_over();
SELECT rows FROM queen.history_step(100);
SELECT taken_at AS last_step FROM queen.queue_history_base WHERE queue_id = '00000000-0000-0000-0000-000000000000' \gset
SELECT pg_temp.interval_is_over();
SELECT status FROM pg_temp.push('other', 'p', 'y');
SELECT rows FROM queen.history_step(100);
SELECT * FROM pg_temp.latest;
SELECT h.started_at = greatest(timestamptz :'last_step' - interval '1 minute', b.stats_reset) AS since_last_step
  FROM queen.queue_history AS h JOIN queen.queue_history_base AS b USING (queue_id)
 WHERE h.ended_at = (SELECT max(ended_at) FROM queen.queue_history);
-- What is rolled back was never counted.
SELECT pg_temp.interval_is_over();
BEGIN;
SELECT status FROM pg_temp.push('other', 'p', 'z');
ROLLBACK;
SELECT rows FROM queen.history_step(100);

-- After a reset the counters start from zero, and so does the difference.
SELECT status FROM pg_temp.push('other', 'p', 'lost');
SELECT queen.pg_stat_queen_reset();
SELECT status FROM pg_temp.push('other', 'p', 'kept1');
SELECT status FROM pg_temp.push('other', 'p', 'kept2');
SELECT pg_temp.interval_is_over();
SELECT rows FROM queen.history_step(100);
SELECT * FROM pg_temp.latest;

-- Retention and lease expiry count as well.
SELECT pg_temp.configure('h', '{"maxWaitTimeSeconds": 60}');
SELECT ids FROM pg_temp.pop('h');
SELECT pg_temp.expire('h');
SELECT rows FROM queen.lease_expiry_step(100);
SELECT pg_temp.age('h', 'p', '1 hour');
SELECT * FROM pg_temp.retain();
SELECT pg_temp.interval_is_over();
SELECT rows FROM queen.history_step(100);
SELECT * FROM pg_temp.latest;

-- Lag is not measured in queues with more than ten thousand partitions.
INSERT INTO queen.log_partitions (queue_id, name, last_offset) SELECT id, 'n' || i, 0 FROM queen.queues, generate_series(1, 9999) AS i WHERE name = 'other';
SELECT queen.log_queue_lag(id) FROM queen.queues WHERE name = 'other';
INSERT INTO queen.log_partitions (queue_id, name, last_offset) SELECT id, 'one more', 0 FROM queen.queues WHERE name = 'other';
SELECT queen.log_queue_lag(id) FROM queen.queues WHERE name = 'other';

-- Rows go at their age, so many at a time; those of a deleted queue too, and no sooner.
SHOW queen.history_retention;
SET queen.history_retention = '10d';
UPDATE queen.queue_history SET ended_at = ended_at - interval '11 days' WHERE queue_id = (SELECT id FROM queen.queues WHERE name = 'other');
SELECT count(*) FROM queen.queue_history WHERE ended_at < now() - interval '10 days';
INSERT INTO queen.retention_history (partition_id, messages_deleted, retention_type, executed_at)
SELECT gen_random_uuid(), 1, 'retention', now() - i * interval '4 days' FROM generate_series(1, 4) AS i;
SELECT queen.log_delete_queue(pg_temp.tenant(), 'h');
SELECT rows, more FROM queen.history_step(3);
SELECT rows, more FROM queen.history_step(3);
SELECT (SELECT count(*) FROM queen.queue_history), (SELECT count(*) FROM queen.retention_history);
DO $$ BEGIN WHILE queen.log_drain_step(1000) > 0 LOOP END LOOP; END $$;
SELECT pg_temp.interval_is_over();
SELECT queen.history_step(100) IS NOT NULL AS done;
SELECT count(*) FROM queen.queue_history_base AS b LEFT JOIN queen.queues AS q ON q.id = b.queue_id WHERE q.id IS NULL;

SELECT * FROM queen.history_step(0);

-- What asks for the last minutes reads those, however long the history is.
INSERT INTO queen.queue_history
SELECT q.id, h - interval '1 minute', h, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
  FROM queen.queues AS q, generate_series(now() - interval '3 days', now() - interval '1 hour', '1 minute') AS h
 WHERE q.name = 'other';
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT queen.log_metrics() IS NOT NULL AS metrics, queen.log_overview(pg_temp.tenant()) IS NOT NULL AS overview;
SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'queen.queue_history'::regclass;
ROLLBACK;
TRUNCATE queen.queues, queen.log_txns, queen.queue_history, queen.queue_history_base CASCADE;
