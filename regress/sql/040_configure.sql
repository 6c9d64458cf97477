-- Configuration: merge and replace, defaults, types, ranges, and what is echoed.
\set tenant '''00000000-0000-0000-0000-000000000001'''

CREATE FUNCTION pg_temp.configure(queue text, options jsonb, mode text DEFAULT 'merge',
                                  namespace text DEFAULT NULL, task text DEFAULT NULL)
RETURNS jsonb LANGUAGE sql AS $$
    SELECT queen.log_configure('00000000-0000-0000-0000-000000000001', queue, namespace, task,
                               options, mode);
$$;

-- A new queue: defaults, which are not those of a queue that a push creates; the name is not taken
-- apart; no partition appears.
SELECT jsonb_pretty(pg_temp.configure('shop.orders', '{}') - 'queueId');
SELECT count(*) FROM queen.log_partitions;

-- Every option comes back as it was sent, and is where the engine looks for it.
SELECT jsonb_pretty(pg_temp.configure('all', '{
    "leaseTime": 1, "retryLimit": 2, "retryDelay": 3, "priority": -4, "maxSize": 5, "ttl": 6,
    "deadLetterQueue": false, "dlqAfterMaxRetries": false, "delayedProcessing": 7,
    "windowBuffer": 8, "minPopWaitTime": 9, "retentionEnabled": true, "retentionSeconds": 10,
    "completedRetentionSeconds": 11, "maxWaitTimeSeconds": 12, "encryptionEnabled": true,
    "dedupWindowSeconds": 13}', 'merge', 'ns', 'tk') - 'queueId');
SELECT name, namespace, task, priority, lease_time, retry_limit, retry_delay, ttl, max_queue_size
  FROM queen.queues WHERE name = 'all';
SELECT dead_letter_queue, dlq_after_max_retries, delayed_processing, window_buffer,
       min_pop_wait_time, encryption_enabled, dedup_window_seconds
  FROM queen.queues WHERE name = 'all';
SELECT retention_enabled, retention_seconds, completed_retention_seconds, max_wait_time_seconds
  FROM queen.queues WHERE name = 'all';

-- Merge: absent keeps, null resets, a value sets; namespace and task keep when they are NULL.
CREATE FUNCTION pg_temp.changed(answer jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}')
           || jsonb_build_object('namespace', answer -> 'namespace', 'task', answer -> 'task')
      FROM jsonb_each(answer -> 'options') AS o
     WHERE o.value <> queen.queue_option_defaults() -> o.key;
$$;
SELECT pg_temp.changed(pg_temp.configure('all', '{"ttl": null, "retryLimit": 20, "leaseTime": null}'));
SELECT pg_temp.changed(pg_temp.configure('all', NULL, NULL, NULL, 'other'));
-- Replace: what is not named goes back.
SELECT pg_temp.changed(pg_temp.configure('all', '{"ttl": 60}', 'replace'));

-- A queue that a push created keeps its lease of 60 s under merge.
SELECT queen.log_provision(ARRAY[:tenant]::uuid[], ARRAY['a.b'], ARRAY['p']);
SELECT pg_temp.changed(pg_temp.configure('a.b', '{"retryLimit": 1}'));
-- It is the same queue: identity, time of creation and partitions stay.
SELECT id, created_at FROM queen.queues WHERE name = 'a.b' \gset
SELECT pg_temp.configure('a.b', '{}') ->> 'queueId' = :'id' AS same;
SELECT q.created_at = :'created_at' AS same, count(*) AS partitions
  FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id
 WHERE q.id = :'id' GROUP BY q.created_at;

-- Clamped, as whole numbers, in any spelling of the number.
SELECT pg_temp.changed(pg_temp.configure('clamp', '{"minPopWaitTime": 60001, "dedupWindowSeconds": -5,
                                                    "leaseTime": 6e1, "ttl": 5.0}'));
SELECT pg_temp.changed(pg_temp.configure('clamp', '{"minPopWaitTime": -1, "dedupWindowSeconds": 1}'));

-- Unknown options are ignored; the empty name is one.
SELECT pg_temp.changed(pg_temp.configure('', '{"retentionSinkHold": "x", "colour": [1]}', 'merge', 'n'));

-- Refused: the COLUMN field names the option, and nothing is stored.
DO $$
DECLARE
    c record;
    field text;
    message text;
    state text;
BEGIN
    FOR c IN SELECT * FROM (VALUES
            ('q', '{"leaseTime": "60"}'::jsonb, 'merge', NULL),
            ('q', '{"leaseTime": 0}', 'merge', NULL),
            ('q', '{"leaseTime": 86401}', 'merge', NULL),
            ('q', '{"retryLimit": 1.5}', 'merge', NULL),
            ('q', '{"retryLimit": true}', 'merge', NULL),
            ('q', '{"ttl": [1]}', 'merge', NULL),
            ('q', '{"priority": 2147483648}', 'merge', NULL),
            ('q', '{"dedupWindowSeconds": 1e300}', 'merge', NULL),
            ('q', '{"retentionSeconds": -1}', 'merge', NULL),
            ('q', '{"delayedProcessing": -1}', 'merge', NULL),
            ('q', '{"retentionEnabled": 1}', 'merge', NULL),
            ('q', '{"deadLetterQueue": "false"}', 'merge', NULL),
            ('q', '[]', 'merge', NULL),
            ('q', '{}', 'append', NULL),
            (E'q\n', '{}', 'merge', NULL),
            (repeat('x', 256), '{}', 'merge', NULL),
            (NULL, '{}', 'merge', NULL),
            ('q', '{}', 'merge', repeat('x', 256))) AS v (queue, options, mode, namespace) LOOP
        BEGIN
            PERFORM pg_temp.configure(c.queue, c.options, c.mode, c.namespace);
            RAISE NOTICE 'accepted: % %', c.queue, c.options;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS field = COLUMN_NAME, message = MESSAGE_TEXT,
                state = RETURNED_SQLSTATE;
            RAISE NOTICE '% %: %', state, field, message;
        END;
    END LOOP;
END
$$;
SELECT name FROM queen.queues ORDER BY name COLLATE "C";

SET client_min_messages = warning;
TRUNCATE queen.queues CASCADE;
