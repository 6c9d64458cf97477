-- Partition clean-up: what is empty and unused for long goes, and nothing else (V-75).
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
SHOW queen.partition_cleanup_age;
SET queen.partition_cleanup_age = '2d';
CREATE FUNCTION pg_temp.unused(part text, since interval) RETURNS void
LANGUAGE sql AS $$
    UPDATE queen.log_partitions SET created_at = now() - since, last_write_at = now() - since
     WHERE id = pg_temp.partition_id('q', part);
    UPDATE queen.log_due SET idle_since = now() - since
     WHERE partition_id = pg_temp.partition_id('q', part) AND idle_since IS NOT NULL;
    UPDATE queen.log_consumers SET created_at = now() - since, lease_acquired_at = lease_acquired_at - since
     WHERE partition_id = pg_temp.partition_id('q', part);
$$;
CREATE FUNCTION pg_temp.names() RETURNS text
LANGUAGE sql AS $$
    SELECT string_agg(p.name, ' ' ORDER BY p.name COLLATE "C")
      FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'q';
$$;
SELECT pg_temp.configure('q', '{"maxWaitTimeSeconds": 60}');
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY '{drained,letter,leased,endless,popped,cursor,young,written}'::text[] LOOP
        PERFORM pg_temp.push('q', name, 'a');
    END LOOP;
END
$$;
SELECT count(*) FROM pg_temp.pop('q', 'drained', auto => true);
SELECT count(*) FROM pg_temp.pop('q', 'leased');
SELECT count(*) FROM pg_temp.pop('q', 'endless', worker => 2);
SELECT count(*) FROM pg_temp.pop('q', 'popped', worker => 3);
SELECT count(*) FROM pg_temp.pop('q', 'cursor', auto => true);
SELECT ids FROM pg_temp.pop('q', 'letter');
SELECT dlq FROM pg_temp.ack('q', 'letter', 1, '{a}', '{dlq}');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{never}');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{new}');
SELECT pg_temp.age('q', n, '1 hour') FROM unnest('{drained,letter,leased,endless,popped,cursor,young,written}'::text[]) AS n;
SELECT count(*) FROM pg_temp.retain();
SELECT status FROM pg_temp.push('q', 'full', 'a');
SELECT part FROM pg_temp.due('q') WHERE idle;

-- Nothing is old enough yet.
SELECT pg_temp.unused(n, '47 hours') FROM unnest('{drained,never}'::text[]) AS n;
SELECT pg_temp.clean_up();
-- One sign of life each keeps the others: a message, a dead letter, a lease with an end or without
-- one, a recent lease, a recent cursor, a recent creation, a recent write.
SELECT pg_temp.unused(n, '49 hours') FROM unnest('{drained,letter,leased,endless,popped,cursor,young,written,never,full}'::text[]) AS n;
UPDATE queen.log_consumers SET lease_expires_at = now() + interval '1 day' WHERE partition_id = pg_temp.partition_id('q', 'leased');
UPDATE queen.log_consumers SET lease_expires_at = NULL WHERE partition_id = pg_temp.partition_id('q', 'endless');
UPDATE queen.log_consumers SET lease_expires_at = NULL, worker_id = NULL, batch_end = NULL, lease_acquired_at = now() WHERE partition_id = pg_temp.partition_id('q', 'popped');
UPDATE queen.log_consumers SET created_at = now() WHERE partition_id = pg_temp.partition_id('q', 'cursor');
UPDATE queen.log_partitions SET created_at = now() WHERE id = pg_temp.partition_id('q', 'young');
UPDATE queen.log_partitions SET last_write_at = now() WHERE id = pg_temp.partition_id('q', 'written');
UPDATE queen.log_due SET idle_since = now() - interval '49 hours' WHERE partition_id = pg_temp.partition_id('q', 'full');
SELECT pg_temp.partition_id('q', 'drained') AS drained \gset
SELECT * FROM queen.partition_cleanup_step(1000);
SELECT pg_temp.clean_up();
SELECT pg_temp.names();
-- A group that read the partition by its name, and subscribed to nothing, gets what comes to the next
-- one of that name; so does one that subscribed to the queue.
SELECT status FROM pg_temp.push('q', 'again', 'a');
SELECT count(*) FROM pg_temp.pop('q', 'again', grp => 'byname', mode => 'all', auto => true);
SELECT count(*) FROM pg_temp.pop('q', 'again', grp => 'subscribed', mode => 'all', auto => true);
INSERT INTO queen.consumer_groups_metadata (tenant_id, consumer_group, queue_id, subscription_mode, subscription_timestamp, existing_from)
SELECT tenant_id, 'subscribed', id, 'new', clock_timestamp(), clock_timestamp() FROM queen.queues WHERE name = 'q';
SELECT pg_temp.age('q', 'again', '1 hour');
SELECT count(*) FROM pg_temp.retain();
SELECT pg_temp.unused('again', '49 hours');
SELECT pg_temp.partition_id('q', 'again') AS again \gset
SELECT * FROM queen.partition_cleanup_step(1000);
SELECT consumer_group, partition_name, subscription_mode FROM queen.consumer_groups_metadata ORDER BY 1, 2;
SELECT status FROM pg_temp.push('q', 'again', 'b');
SELECT pg_temp.partition_id('q', 'again') <> :'again' AS another;
SELECT ids FROM pg_temp.pop('q', 'again', grp => 'byname', mode => 'new', auto => true);
SELECT ids FROM pg_temp.pop('q', 'again', grp => 'subscribed', mode => 'new', auto => true);
SELECT ids FROM pg_temp.pop('q', 'again', grp => 'stranger', mode => 'new', auto => true);

-- Cursors, sidecar and due time went with it; the history says so.
SELECT (SELECT count(*) FROM queen.log_consumers WHERE partition_id = :'drained') AS cursors,
       (SELECT count(*) FROM queen.log_txns WHERE partition_id = :'drained') AS sidecar,
       (SELECT count(*) FROM queen.log_due WHERE partition_id = :'drained') AS due,
       (SELECT string_agg(retention_type, ' ' ORDER BY executed_at) FROM queen.retention_history WHERE partition_id = :'drained') AS history;
-- Those that stayed are looked at again when they may be old enough, not before.
SELECT p.name, round(extract(epoch FROM now() - d.idle_since) / 3600) AS hours
  FROM queen.log_due AS d JOIN queen.log_partitions AS p ON p.id = d.partition_id
 WHERE d.idle_since IS NOT NULL ORDER BY p.name COLLATE "C";
SELECT * FROM queen.partition_cleanup_step(1000);

-- A sidecar that one step could not delete is left to the purge.
SELECT status FROM pg_temp.push('q', 'hashes', 'a');
SELECT status FROM pg_temp.push('q', 'hashes', 'b');
SELECT pg_temp.age('q', 'hashes', '1 hour');
SELECT count(*) FROM pg_temp.retain();
SELECT pg_temp.unused('hashes', '3 days');
SELECT pg_temp.clean_up(2);
SELECT pg_temp.names() ~ 'hashes';
SELECT pg_temp.unused('hashes', '3 days');
SELECT pg_temp.clean_up(3);
SELECT pg_temp.names() ~ 'hashes';

-- A push to a partition that went provisions a new one, with an empty memory and offsets from 0.
SELECT status FROM queen.log_push(ARRAY[pg_temp.tenant()], '{q}', '{drained}', '{1}', ARRAY[queen.log_hash('a')], ARRAY['\x01']::bytea[], true);
SELECT status, base_offset, partition_id <> :'drained' AS another FROM pg_temp.push('q', 'drained', 'a');

-- A queue never goes for being empty (M-43).
SELECT count(*) FROM queen.queues;
SELECT * FROM queen.partition_cleanup_step(0);
