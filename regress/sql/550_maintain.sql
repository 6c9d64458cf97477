-- queen.maintain(): everything that is due, and a commit after each step.
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
SELECT pg_temp.configure('q', '{"maxWaitTimeSeconds": 60}');
DO $$
BEGIN
    FOR i IN 1 .. 3 LOOP
        PERFORM pg_temp.push('q', 'old', 'm' || i);
        PERFORM pg_temp.push('q', 'leased', 'm' || i);
        PERFORM pg_temp.push('gone', 'p', 'm' || i);
    END LOOP;
END
$$;
SELECT ids FROM pg_temp.pop('q', 'leased');
SELECT pg_temp.expire('q');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{unused}');
UPDATE queen.log_partitions SET created_at = created_at - interval '31 days', last_write_at = last_write_at - interval '31 days' WHERE name = 'unused';
UPDATE queen.log_due SET idle_since = idle_since - interval '31 days' WHERE idle_since IS NOT NULL;
SELECT pg_temp.age('q', 'old', '1 day');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'gone');

-- It is no function, and no part of a larger transaction.
BEGIN;
CALL queen.maintain();
ROLLBACK;
SELECT count(*) FROM queen.log_segments;

SET queen.maintenance_batch = 2;
SELECT pg_current_xact_id() AS before \gset
CALL queen.maintain();
SELECT pg_current_xact_id()::text::bigint - :before > 8 AS many_transactions;
SELECT * FROM pg_temp.log('q');
SELECT * FROM pg_temp.cursors('q');
SELECT count(*) FROM queen.queues;

-- Nothing is left to do, and to do nothing is no error.
CALL queen.maintain();

-- Only its owner, and whoever he allows to, may call it or a step.
SET ROLE queen_frontend;
CALL queen.maintain();
SELECT * FROM queen.retention_step(1);
RESET ROLE;

-- Maintenance modes have names.
\set VERBOSITY sqlstate
SELECT * FROM queen.log_set_maintenance(NULL, true);
SELECT * FROM queen.log_set_maintenance('x', true);
SELECT * FROM queen.log_set_maintenance('maintenance_mode', NULL);
