-- Consumer groups: listings, deletion, where they start, and names at their limit.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
\set VERBOSITY terse
-- Times and ids replaced by what is known about them.
CREATE FUNCTION pg_temp.still(v jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE jsonb_typeof(v)
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(key, CASE
                WHEN key = 'partition_id' OR key ~* 'worker_?id$' AND value <> 'null'
                    THEN to_jsonb(value #>> '{}' ~ '^[0-9a-f-]{36}$')
                WHEN key IN ('subscriptionTimestamp', 'subscriptionCreatedAt', 'oldest_unconsumed_at') AND value <> 'null'
                    THEN to_jsonb(CASE WHEN value #>> '{}' = '1970-01-01T00:00:00.000Z' THEN 'epoch'
                                       WHEN value #>> '{}' ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$' THEN 'time' END)
                WHEN key ~* 'time_?lag' THEN to_jsonb(round((value::numeric) / 10) * 10)
                ELSE pg_temp.still(value) END), '{}') FROM jsonb_each(v))
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg(pg_temp.still(value) ORDER BY n), '[]')
                             FROM jsonb_array_elements(v) WITH ORDINALITY AS e (value, n))
        ELSE v END;
$$;
CREATE FUNCTION pg_temp.list() RETURNS SETOF jsonb LANGUAGE sql AS $$
    SELECT e - '{topics,members,storage,conflation}'::text[] FROM jsonb_array_elements(pg_temp.still(queen.log_groups(pg_temp.tenant()))) AS e;
$$;
CREATE FUNCTION pg_temp.delete_group(grp text, queue text, metadata boolean)
RETURNS TABLE (deleted int, more boolean)
LANGUAGE plpgsql AS $$
DECLARE
    step    record;
    resume  jsonb;
BEGIN
    LOOP
        SELECT * INTO step FROM queen.log_delete_group(pg_temp.tenant(), grp, queue, metadata, resume, 2);
        resume := step.next;
        deleted := step.deleted;
        more := resume IS NOT NULL;
        RETURN NEXT;
        EXIT WHEN NOT more;
    END LOOP;
END
$$;

SELECT queen.log_groups(pg_temp.tenant()), queen.log_group(pg_temp.tenant(), 'g'), queen.log_lagging(pg_temp.tenant(), 0);

-- Who holds a lease is at work, whether or not it has completed anything.
SELECT base_offset FROM pg_temp.push('lives', 'p', 'a');
SELECT status FROM pg_temp.pop('lives', grp => 'l', mode => 'all');
SELECT g -> 'state' AS state FROM jsonb_array_elements(queen.log_groups(pg_temp.tenant())) AS g;
UPDATE queen.log_consumers SET lease_expires_at = now() - interval '1 s' WHERE consumer_group = 'l';
SELECT g -> 'state' AS state FROM jsonb_array_elements(queen.log_groups(pg_temp.tenant())) AS g;
SELECT queen.log_delete_queue(pg_temp.tenant(), 'lives');

-- Lags by offsets; an age from the first message that is not committed, leased or not.
SELECT base_offset FROM pg_temp.push('q', 'p1', 'a', 'b', 'c', 'd');
SELECT pg_temp.age('q', 'p1', '2 hours');
SELECT base_offset FROM pg_temp.push('q', 'p1', 'e');
SELECT base_offset FROM pg_temp.push('q', 'p2', 'x');
SELECT ids FROM pg_temp.pop('q', 'p1', grp => 'g', batch => 2);
SELECT success FROM pg_temp.ack('q', 'p1', 1, '{b}', grp => 'g');
SELECT ids FROM pg_temp.pop('q', 'p1', grp => 'g', batch => 1);
SELECT ids FROM pg_temp.pop('q', grp => 'done', mode => 'all', partitions => 0, auto => true) ORDER BY 1;
SELECT status FROM pg_temp.pop('q', grp => 'new', mode => 'new');
SELECT status FROM pg_temp.pop('other', grp => 'g', mode => 'new');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{other}', '{NULL}');
SELECT status FROM pg_temp.pop('other', grp => 'g', mode => 'new');
SELECT jsonb_pretty(pg_temp.still(queen.log_groups(pg_temp.tenant())) -> 0);
SELECT pg_temp.list();
SELECT jsonb_pretty(pg_temp.still(queen.log_group(pg_temp.tenant(), 'g')));
SELECT jsonb_pretty(pg_temp.still(queen.log_lagging(pg_temp.tenant(), 3600)));
SELECT e ->> 'consumer_group', e ->> 'partition_name' FROM jsonb_array_elements(queen.log_lagging(pg_temp.tenant(), 0)) AS e;
SELECT queen.log_lagging(pg_temp.tenant(), 100000), queen.log_group(pg_temp.tenant(), 'nobody');
-- A partition that a subscribed group has not met counts as what it will get there.
SELECT base_offset FROM pg_temp.push('q', 'p3', 'y', 'z');
SELECT pg_temp.list() -> 'totalLag' AS lag;
-- V-96: another tenant sees nothing.
SELECT queen.log_groups(t), queen.log_group(t, 'g'), queen.log_lagging(t, 0)
  FROM (VALUES ('00000000-0000-0000-0000-000000000002'::uuid)) AS v (t);

-- Deletion from one queue: cursors and leases; the subscription goes with metadata only.
SELECT * FROM pg_temp.delete_group('new', 'q', false);
SELECT committed FROM pg_temp.cursors('q') WHERE grp = 'new';
SELECT subscription_mode FROM queen.consumer_groups_metadata WHERE consumer_group = 'new';
-- V-33: without metadata the group starts where it did: what came since is delivered.
SELECT ids FROM pg_temp.pop('q', grp => 'new', mode => 'all', partitions => 0) ORDER BY 1;
SELECT * FROM pg_temp.delete_group('new', 'q', true);
SELECT count(*) FROM queen.consumer_groups_metadata WHERE consumer_group = 'new';
SELECT ids FROM pg_temp.pop('q', grp => 'new', mode => 'all', partitions => 0) ORDER BY 1;
-- The lease that was out is over, and its batch is there for the next.
SELECT success, error FROM pg_temp.ack('q', 'p1', 1, '{c}', grp => 'g');
SELECT * FROM pg_temp.delete_group('g', 'q', true);
SELECT success, error FROM pg_temp.ack('q', 'p1', 1, '{d}', grp => 'g');
SELECT subscription_mode, q.name FROM queen.consumer_groups_metadata AS m JOIN queen.queues AS q ON q.id = m.queue_id WHERE consumer_group = 'g';
SELECT ids FROM pg_temp.pop('q', 'p1', grp => 'g', worker => 2, batch => 3);

-- From all queues, in steps; watermarks go, too; other groups stay.
SELECT base_offset FROM pg_temp.push('other', 'p1', 'm');
SELECT base_offset FROM pg_temp.push('third', 'p1', 'm');
SELECT ids FROM pg_temp.pop('other', grp => 'g', mode => 'all');
SELECT ids FROM pg_temp.pop('third', 'p1', grp => 'g', mode => 'all');
INSERT INTO queen.consumer_watermarks (queue_id, consumer_group)
SELECT q.id, g FROM queen.queues AS q, unnest('{g,done}'::text[]) AS g WHERE q.name IN ('q', 'other') ON CONFLICT DO NOTHING;
SELECT sum(deleted) FROM pg_temp.delete_group('g', NULL, true);
SELECT (SELECT count(*) FROM queen.log_consumers WHERE consumer_group = 'g') AS cursors,
       (SELECT count(*) FROM queen.consumer_groups_metadata WHERE consumer_group = 'g') AS subscriptions,
       (SELECT count(*) FROM queen.consumer_watermarks WHERE consumer_group = 'g') AS watermarks;
SELECT (SELECT count(*) FROM queen.log_consumers WHERE consumer_group = 'done') AS cursors,
       (SELECT count(*) FROM queen.consumer_groups_metadata WHERE consumer_group = 'done') AS subscriptions,
       (SELECT count(*) FROM queen.consumer_watermarks WHERE consumer_group = 'done') AS watermarks;
SELECT * FROM pg_temp.delete_group('g', NULL, true);
SELECT * FROM pg_temp.delete_group('done', 'nowhere', true);
SELECT d.deleted FROM queen.log_delete_group('00000000-0000-0000-0000-000000000002', 'done', NULL, true, NULL, 10) AS d;
SELECT count(*) FROM pg_temp.cursors('q') WHERE grp = 'done';

-- A cursor that came after the deletion began belongs to the new life of the group and stays; a
-- queue that is deleted between two steps does not end the deletion.
SELECT count(*) FROM generate_series(1, 4) AS i, pg_temp.push('steps', 'p' || i, 'a');
SELECT count(*) FROM pg_temp.pop('steps', grp => 's', partitions => 0, auto => true);
SELECT next AS resume FROM queen.log_delete_group(pg_temp.tenant(), 's', NULL, true, NULL, 2) \gset
SELECT count(*) FROM pg_temp.cursors('steps');
SELECT pg_temp.partition_id('steps', 'p3') AS p3 \gset
DELETE FROM queen.log_consumers WHERE partition_id = :'p3';
SELECT ids FROM pg_temp.pop('steps', 'p3', grp => 's', mode => 'all', auto => true);
SELECT deleted FROM queen.log_delete_group(pg_temp.tenant(), 's', NULL, true, :'resume', 2);
SELECT partition FROM pg_temp.cursors('steps');
SELECT count(*) FROM generate_series(1, 3) AS i, pg_temp.push('q' || i, 'p1', 'a') AS a, pg_temp.push('q' || i, 'p2', 'a') AS b;
SELECT sum((SELECT count(*) FROM pg_temp.pop('q' || i, grp => 't', partitions => 0, auto => true))) FROM generate_series(1, 3) AS i;
SELECT next AS resume FROM queen.log_delete_group(pg_temp.tenant(), 't', NULL, true, NULL, 1) \gset
SELECT queen.log_delete_queue(pg_temp.tenant(), (SELECT name FROM queen.queues WHERE id = (:'resume'::jsonb ->> 'queue')::uuid));
SELECT queue_id <> (:'resume'::jsonb ->> 'queue')::uuid AS other, deleted, next ? 'began' AS unfinished
  FROM queen.log_delete_group(pg_temp.tenant(), 't', NULL, true, :'resume', 10);

-- The start of a subscription moves, cursors stay.
SELECT status FROM pg_temp.pop('third', grp => 'moved', mode => 'new');
SELECT committed FROM pg_temp.cursors('third') WHERE grp = 'moved';
SELECT base_offset FROM pg_temp.push('third', 'p9', 'nine');
INSERT INTO queen.consumer_watermarks (queue_id, consumer_group)
SELECT id, 'moved' FROM queen.queues WHERE name = 'third' ON CONFLICT DO NOTHING;
SELECT queen.log_move_subscription(pg_temp.tenant(), 'moved', now() + interval '1 day') -> 'rowsUpdated' AS moved;
SELECT subscription_mode, subscription_timestamp > now() AS future,
       (SELECT count(*) FROM queen.consumer_watermarks WHERE consumer_group = 'moved') AS watermarks
  FROM queen.consumer_groups_metadata WHERE consumer_group = 'moved';
SELECT committed FROM pg_temp.cursors('third') WHERE grp = 'moved';
SELECT status FROM pg_temp.pop('third', grp => 'moved');
SELECT partition, committed FROM pg_temp.cursors('third') WHERE grp = 'moved';
SELECT queen.log_move_subscription(pg_temp.tenant(), 'nobody', now()) -> 'rowsUpdated' AS moved;
SELECT queen.log_move_subscription('00000000-0000-0000-0000-000000000002', 'moved', now()) -> 'rowsUpdated' AS moved;
SELECT queen.log_move_subscription(pg_temp.tenant(), 'moved', NULL) -> 'rowsUpdated' AS moved;

-- Names of 255 characters of four bytes, which do not compress, everywhere.
SELECT string_agg(chr(65536 + (i * 7919) % 60000), '') AS long FROM generate_series(1, 255) AS i \gset
SELECT char_length(:'long'), octet_length(:'long');
SELECT status FROM pg_temp.push(:'long', :'long', 'a');
SELECT status FROM pg_temp.pop(:'long', 'x' || left(:'long', 254), grp => :'long', mode => 'new');
SELECT ids FROM pg_temp.pop(:'long', grp => :'long');
SELECT moved FROM queen.log_seek(pg_temp.tenant(), :'long', :'long', :'long', '-infinity', NULL, 1);
SELECT e ->> 'name' = :'long' FROM jsonb_array_elements(queen.log_groups(pg_temp.tenant())) AS e WHERE e ->> 'queueName' = :'long';
SELECT sum(deleted) FROM pg_temp.delete_group(:'long', NULL, true);
