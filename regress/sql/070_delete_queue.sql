-- Deletion of a queue: the name is free at once, the data goes in bounded steps.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.rows() RETURNS TABLE (queues bigint, partitions bigint, segments bigint,
    sidecar bigint, cursors bigint, letters bigint, subscriptions bigint, watermarks bigint)
LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM queen.queues), (SELECT count(*) FROM queen.log_partitions),
           (SELECT count(*) FROM queen.log_segments), (SELECT count(*) FROM queen.log_txns),
           (SELECT count(*) FROM queen.log_consumers), (SELECT count(*) FROM queen.log_dlq),
           (SELECT count(*) FROM queen.consumer_groups_metadata),
           (SELECT count(*) FROM queen.consumer_watermarks);
$$;

SELECT status FROM pg_temp.push('q', 'p1', 'a', 'b');
SELECT status FROM pg_temp.push('q', 'p1', 'c');
SELECT status FROM pg_temp.push('q', 'p2', 'a');
SELECT status FROM pg_temp.push('keep', 'p1', 'a');
INSERT INTO queen.log_consumers (partition_id, consumer_group)
SELECT p.id, g FROM queen.log_partitions AS p, unnest('{__QUEUE_MODE__,g}'::text[]) AS g;
INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", error)
SELECT id, 'g', 0, 'e' FROM queen.log_partitions;
INSERT INTO queen.consumer_groups_metadata (tenant_id, consumer_group, queue_id, subscription_mode, subscription_timestamp)
SELECT tenant_id, 'g', id, 'all', 'epoch' FROM queen.queues;
INSERT INTO queen.consumer_watermarks (queue_id, consumer_group) SELECT id, 'g' FROM queen.queues;
INSERT INTO queen.message_traces (tenant_id, partition_id, transaction_id, consumer_group, data)
SELECT pg_temp.tenant(), id, 'a', 'g', '{}' FROM queen.log_partitions;
SELECT * FROM pg_temp.rows();

-- Only the tenant's own, and only once.
SELECT queen.log_delete_queue('00000000-0000-0000-0000-000000000002', 'q');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'unknown');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'q');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'q');
SELECT queen.log_delete_queue(NULL, NULL);

-- The row lies under a name that no client can send.
SELECT name = E'\x1F' || id AS renamed, queen.log_valid_name(name), deleted_at IS NOT NULL AS marked
  FROM queen.queues WHERE deleted_at IS NOT NULL;

-- The name is free, with an empty memory: nothing of the old queue shows.
SELECT entry, status FROM queen.log_push(ARRAY[pg_temp.tenant()], '{q}', '{p1}', '{1}',
                                         ARRAY[queen.log_hash('a')], ARRAY['\x01']::bytea[], true);
SELECT queen.log_queue(pg_temp.tenant(), 'q') IS NULL AS gone;
SELECT status, base_offset FROM pg_temp.push('q', 'p1', 'a');

-- Steps: never more than asked for, one partition each, until nothing is left.
CREATE TEMP TABLE steps (n serial, removed int);
DO $$
DECLARE
    removed int;
BEGIN
    LOOP
        removed := queen.log_drain_step(2);
        EXIT WHEN removed = 0;
        INSERT INTO steps (removed) VALUES (removed);
    END LOOP;
END
$$;
SELECT max(removed) AS most, sum(removed) AS all FROM steps;
SELECT * FROM pg_temp.rows();
SELECT queen.log_drain_step(100);
-- Traces outlive the queue.
SELECT count(*) FROM queen.message_traces;
-- What belongs to other queues is as it was.
SELECT status FROM pg_temp.push('keep', 'p1', 'a');
SELECT status FROM pg_temp.push('q', 'p1', 'a');

-- A step that has room takes everything of one partition.
SELECT queen.log_delete_queue(pg_temp.tenant(), 'keep');
SELECT queen.log_drain_step(100);
SELECT queen.log_drain_step(100);
SELECT queen.log_drain_step(100);
-- A deleted queue without partitions.
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{empty}', '{NULL}');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'empty');
SELECT queen.log_drain_step(1);
SELECT name FROM queen.queues;

\set VERBOSITY sqlstate
SELECT queen.log_drain_step(0);
SELECT queen.log_drain_step(NULL);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT queen.log_drain_step(1);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT queen.log_delete_queue(pg_temp.tenant(), 'q');
ROLLBACK;
\set VERBOSITY default

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns, queen.log_dlq, queen.message_traces CASCADE;
