-- First contact: where a consumer group starts, and that it is only moved by itself.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE VIEW pg_temp.subscriptions AS
SELECT q.name, m.consumer_group, m.subscription_mode, m.partition_name,
       CASE WHEN m.subscription_timestamp = 'epoch' THEN 'epoch'
            WHEN m.subscription_timestamp > clock_timestamp() - interval '6 hours' THEN 'now'
            ELSE 'given' END AS since
  FROM queen.consumer_groups_metadata AS m JOIN queen.queues AS q ON q.id = m.queue_id
 ORDER BY 1, m.consumer_group COLLATE "C";

-- Three segments: two days old, one day old, new.
SELECT base_offset FROM pg_temp.push('q', 'p', 'old1', 'old2');
SELECT pg_temp.age('q', 'p', '1 day');
SELECT base_offset FROM pg_temp.push('q', 'p', 'mid1', 'mid2');
SELECT pg_temp.age('q', 'p', '1 day');
SELECT base_offset FROM pg_temp.push('q', 'p', 'new1', 'new2');

-- V-33: all starts at the oldest, new delivers nothing that was there, a time starts at the first
-- segment stamped at or after it, queue mode never skips.
SELECT ids FROM pg_temp.pop('q', grp => 'all');
SELECT ids FROM pg_temp.pop('q', grp => 'explicit', mode => 'all');
SELECT ids FROM pg_temp.pop('q', grp => 'new', mode => 'new');
SELECT ids FROM pg_temp.pop('q', grp => 'day', since => now() - interval '30 hours');
SELECT ids FROM pg_temp.pop('q', grp => 'both', since => now() - interval '3 days', mode => 'new');
SELECT ids FROM pg_temp.pop('q', grp => 'future', since => now() + interval '1 hour');
SELECT ids FROM pg_temp.pop('q', mode => 'new', since => now());
SELECT partition, grp, committed FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.subscriptions;
-- The stamp itself counts: the segment that bears it is delivered.
SELECT p.ids FROM queen.log_segments AS s,
       LATERAL pg_temp.pop('q', grp => 'exact', since => s.created_at) AS p
 WHERE s.partition_id = pg_temp.partition_id('q', 'p') AND s.base_offset = 2;

-- Later messages do come, also in partitions that are made later, and those are met one by one.
SELECT base_offset FROM pg_temp.push('q', 'p', 'later');
SELECT base_offset FROM pg_temp.push('q', 'p2', 'later2');
SELECT ids FROM pg_temp.pop('q', grp => 'new', partitions => 5) ORDER BY 1;
SELECT partition, grp, committed FROM pg_temp.cursors('q') WHERE grp = 'new';

-- V-36: no parameter moves a cursor or a subscription that exists.
SELECT ids FROM pg_temp.pop('q', grp => 'future', mode => 'all', since => 'epoch', partitions => 5);
SELECT partition, grp, committed FROM pg_temp.cursors('q') WHERE grp = 'future';
SELECT subscription_mode FROM pg_temp.subscriptions WHERE consumer_group = 'future';

-- The first pop registers; a partition gets its cursor when something is claimed there.
SELECT count(*) FROM generate_series(1, 3) AS i, pg_temp.push('seed', 'p' || i, 'a', 'b');
SELECT pg_temp.retain_from('seed', 'p2', 2);
SELECT base_offset FROM pg_temp.push('seed', 'p2', 'c');
SELECT status FROM pg_temp.pop('seed', grp => 'n', mode => 'new');
SELECT count(*) FROM pg_temp.pop('seed', grp => 'a', batch => 1);
SELECT partition, grp, committed FROM pg_temp.cursors('seed');

-- A pinned pop subscribes to that partition only: its mode seeds that one cursor.
SELECT ids FROM pg_temp.pop('seed', 'p1', grp => 'pin', mode => 'new');
SELECT ids FROM pg_temp.pop('seed', 'p2', grp => 'pin');
SELECT ids FROM pg_temp.pop('seed', 'p3', grp => 'pin', since => now() + interval '1 hour');
SELECT partition, grp, committed FROM pg_temp.cursors('seed') WHERE grp = 'pin';
SELECT count(*) FROM pg_temp.subscriptions WHERE consumer_group = 'pin';
-- With a subscription that one decides, also for a pinned pop.
SELECT base_offset FROM pg_temp.push('seed', 'p4', 'd');
SELECT ids FROM pg_temp.pop('seed', 'p4', grp => 'n', mode => 'all', since => now() + interval '1 hour');
-- V-33: what comes after the first look by name is new, also when that look met an empty
-- partition, a delayed one, or none at all, and whatever the later pops say.
SELECT status FROM pg_temp.pop('seed', 'p5', grp => 'pin', mode => 'new');
SELECT status FROM pg_temp.pop('seed', 'p5', grp => 'old', mode => 'all');
SELECT status FROM pg_temp.pop('seed', 'p5', grp => 'late', since => now() + interval '1 hour');
SELECT status FROM pg_temp.pop('seed', 'p5');
SELECT status FROM pg_temp.pop('seed', 'p5', grp => 'n', mode => 'all');
SELECT * FROM pg_temp.subscriptions WHERE name = 'seed' AND partition_name <> '';
SELECT base_offset FROM pg_temp.push('seed', 'p5', 'e');
SELECT grp, (pg_temp.pop('seed', 'p5', grp => grp, mode => 'new')).ids FROM unnest('{pin,old,late,other}'::text[]) AS grp;
SELECT grp, committed FROM pg_temp.cursors('seed') WHERE partition = 'p5';
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{seed}', '{p6}');
SELECT status FROM pg_temp.pop('seed', 'p6', grp => 'pin', mode => 'new');
SELECT base_offset FROM pg_temp.push('seed', 'p6', 'f');
SELECT ids FROM pg_temp.pop('seed', 'p6', grp => 'pin', mode => 'new');
SELECT queen.log_configure(pg_temp.tenant(), 'slow', NULL, NULL, '{"delayedProcessing": 100}', 'merge') IS NOT NULL;
SELECT base_offset FROM pg_temp.push('slow', 'p', 'before');
SELECT status FROM pg_temp.pop('slow', 'p', grp => 'pin', mode => 'new');
SELECT base_offset FROM pg_temp.push('slow', 'p', 'after');
SELECT pg_temp.age('slow', 'p', '200 seconds');
SELECT ids FROM pg_temp.pop('slow', 'p', grp => 'pin', mode => 'new');
-- Nothing is noted of a queue that does not exist.
SELECT status, queue_id FROM pg_temp.pop_rows('nowhere', 'p', grp => 'pin', mode => 'new');

-- Queue mode starts at the oldest message there as well.
SELECT ids FROM pg_temp.pop('seed', 'p4', mode => 'new');

-- Cursors that exist before the subscription stay.
SELECT ids FROM pg_temp.pop('seed', grp => 'pin', partitions => 0, mode => 'all') ORDER BY 1;
SELECT partition, grp, committed FROM pg_temp.cursors('seed') WHERE grp = 'pin';

-- The search for a time: every boundary in a row of segments of 1, 2 and 3 messages with a hole.
DO $$
BEGIN
    FOR i IN 1..4 LOOP
        PERFORM pg_temp.push('bisect', 'p', 'a' || i), pg_temp.push('bisect', 'p', 'b' || i, 'c' || i),
                pg_temp.push('bisect', 'p', 'd' || i, 'e' || i, 'f' || i);
    END LOOP;
END
$$;
UPDATE queen.log_segments SET created_at = 'epoch'::timestamptz + base_offset * interval '1 minute'
 WHERE partition_id = pg_temp.partition_id('bisect', 'p');
DELETE FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('bisect', 'p') AND base_offset IN (0, 7, 9);
SELECT count(*) AS searches, count(*) FILTER (WHERE found <> walked) AS wrong, array_agg(DISTINCT found) AS found
  FROM (SELECT queen.log_offset_before(p.id, start, p.last_offset, 'epoch'::timestamptz + m * interval '1 minute') AS found,
               coalesce((SELECT min(s.base_offset) - 1 FROM queen.log_segments AS s
                          WHERE s.partition_id = p.id
                            AND s.created_at >= 'epoch'::timestamptz + m * interval '1 minute'),
                        p.last_offset) AS walked
          FROM queen.log_partitions AS p, generate_series(-1, 25) AS m, generate_series(0, 1) AS start
         WHERE p.id = pg_temp.partition_id('bisect', 'p')) AS f;
