-- Seek: to the end, to the beginning, to a time; on one partition and on all; what it does to leases.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE FUNCTION pg_temp.seek(queue text, part text, target timestamptz, grp text DEFAULT 'g')
RETURNS TABLE (found boolean, moved int, next text)
LANGUAGE sql AS $$
    SELECT s.queue_id IS NOT NULL, s.moved, s.next
      FROM queen.log_seek(pg_temp.tenant(), grp, queue, part, target, NULL, 1000) AS s;
$$;

-- Three segments: two days old, one day old, new; and an empty partition.
SELECT base_offset FROM pg_temp.push('q', 'p', 'old1', 'old2');
SELECT pg_temp.age('q', 'p', '1 day');
SELECT base_offset FROM pg_temp.push('q', 'p', 'mid1', 'mid2');
SELECT pg_temp.age('q', 'p', '1 day');
SELECT base_offset FROM pg_temp.push('q', 'p', 'new1', 'new2');
SELECT base_offset FROM pg_temp.push('q', 'p2', 'x');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{p3}');

-- Cursors that are missing are made; the group needs no subscription.
SELECT * FROM pg_temp.seek('q', NULL, 'infinity');
SELECT partition, committed FROM pg_temp.cursors('q') WHERE grp = 'g';
SELECT ids FROM pg_temp.pop('q', grp => 'g', partitions => 0, mode => 'all');
SELECT * FROM pg_temp.seek('q', NULL, '-infinity');
SELECT ids FROM pg_temp.pop('q', grp => 'g', partitions => 0) ORDER BY 1;

-- The leases are over: their holder acknowledges nothing, the batch is there for others, its budget new.
SELECT * FROM pg_temp.ack('q', 'p', 1, '{old1}', '{failed}', 'g');
SELECT ids FROM pg_temp.pop('q', 'p', grp => 'g', batch => 2);
SELECT retries FROM pg_temp.cursors('q') WHERE grp = 'g' AND partition = 'p';
SELECT * FROM pg_temp.seek('q', 'p', now() - interval '30 hours');
SELECT * FROM pg_temp.cursors('q') WHERE grp = 'g';
SELECT success, error FROM pg_temp.ack('q', 'p', 1, '{old1}', grp => 'g');
SELECT attempt, ids FROM pg_temp.pop('q', 'p', grp => 'g', worker => 2);

-- A time: the segment that bears the stamp is delivered; the future is the end.
SELECT s.moved FROM queen.log_segments AS g, pg_temp.seek('q', 'p', g.created_at) AS s
 WHERE g.partition_id = pg_temp.partition_id('q', 'p') AND g.base_offset = 4;
SELECT ids FROM pg_temp.pop('q', 'p', grp => 'g');
SELECT * FROM pg_temp.seek('q', 'p', now() + interval '1 hour');
SELECT committed FROM pg_temp.cursors('q') WHERE grp = 'g' AND partition = 'p';
SELECT * FROM pg_temp.seek('q', 'p', '-infinity');
SELECT committed FROM pg_temp.cursors('q') WHERE grp = 'g' AND partition = 'p';
-- The beginning is where retention has left it.
SELECT pg_temp.retain_from('q', 'p', 2);
SELECT * FROM pg_temp.seek('q', 'p', '-infinity');
SELECT committed FROM pg_temp.cursors('q') WHERE grp = 'g' AND partition = 'p';
SELECT ids FROM pg_temp.pop('q', 'p', grp => 'g');

-- Other groups stay, and so does a subscription; queue mode is a group like others.
SELECT ids FROM pg_temp.pop('q', grp => 'h', mode => 'new', partitions => 0);
SELECT * FROM pg_temp.seek('q', NULL, '-infinity', 'h');
SELECT ids FROM pg_temp.pop('q', grp => 'h', mode => 'new', partitions => 0) ORDER BY 1;
SELECT consumer_group, subscription_mode FROM queen.consumer_groups_metadata ORDER BY 1;
SELECT committed FROM pg_temp.cursors('q') WHERE grp = 'g' AND partition = 'p';
SELECT * FROM pg_temp.seek('q', 'p2', 'infinity', '__QUEUE_MODE__');
SELECT ids FROM pg_temp.pop('q', 'p2');

-- A watermark does not hide what the seek brought back.
SELECT base_offset FROM pg_temp.push('mark', 'p', 'a');
SELECT ids FROM pg_temp.pop('mark', grp => 'g', auto => true, mode => 'all');
UPDATE queen.log_partitions SET last_write_at = now() - interval '1 hour' WHERE id = pg_temp.partition_id('mark', 'p');
INSERT INTO queen.consumer_watermarks (queue_id, consumer_group, last_empty_scan_at)
SELECT id, 'g', now() FROM queen.queues WHERE name = 'mark'
ON CONFLICT (queue_id, consumer_group) DO UPDATE SET last_empty_scan_at = now();
SELECT * FROM pg_temp.seek('mark', 'p', '-infinity');
SELECT count(*) FROM queen.consumer_watermarks;
SELECT ids FROM pg_temp.pop('mark', grp => 'g');

-- In steps: no step touches more cursors than it is told.
SELECT count(*) FROM generate_series(1, 7) AS i, pg_temp.push('wide', 'p' || i, 'a');
SELECT moved, next FROM queen.log_seek(pg_temp.tenant(), 'g', 'wide', NULL, '-infinity', NULL, 3);
SELECT count(*) FROM pg_temp.cursors('wide');
SELECT moved, next FROM queen.log_seek(pg_temp.tenant(), 'g', 'wide', NULL, '-infinity', 'p3', 3);
SELECT moved, next FROM queen.log_seek(pg_temp.tenant(), 'g', 'wide', NULL, '-infinity', 'p6', 3);
SELECT count(*), min(committed), max(committed) FROM pg_temp.cursors('wide');
SELECT moved, next FROM queen.log_seek(pg_temp.tenant(), 'g', 'wide', NULL, 'infinity', 'p7', 3);

-- What there is not.
SELECT * FROM pg_temp.seek('nowhere', NULL, 'infinity');
SELECT * FROM pg_temp.seek('q', 'nowhere', 'infinity');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{bare}', '{NULL}');
SELECT * FROM pg_temp.seek('bare', NULL, 'infinity');
-- V-96: nor of another tenant.
SELECT s.queue_id, s.moved
  FROM queen.log_seek('00000000-0000-0000-0000-000000000002', 'g', 'q', NULL, 'infinity', NULL, 1000) AS s;
SELECT * FROM pg_temp.seek('q', NULL, 'infinity', '');
SELECT * FROM pg_temp.seek('q', NULL, 'infinity', repeat('x', 256));
SELECT * FROM pg_temp.seek('q', NULL, NULL);
SELECT queen.log_seek(pg_temp.tenant(), 'g', 'q', NULL, 'infinity', NULL, 0);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM pg_temp.seek('q', NULL, 'infinity');
ROLLBACK;
