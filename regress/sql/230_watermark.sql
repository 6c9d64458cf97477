-- The watermark: bounds the search for written partitions, and never hides one.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
-- It is what a search of the tables goes by; so does a walk that fills a work list, but not at once.
SET queen.use_worklists = off;
-- checked: looked at since the clock was last set on.
CREATE VIEW pg_temp.watermarks AS
SELECT q.name, w.consumer_group, w.last_empty_scan_at > 'epoch' AS moved, w.updated_at > 'epoch' AS checked
  FROM queen.consumer_watermarks AS w JOIN queen.queues AS q ON q.id = w.queue_id
 ORDER BY 1, 2;
CREATE FUNCTION pg_temp.half_a_minute_later() RETURNS void
LANGUAGE sql AS $$ UPDATE queen.consumer_watermarks SET updated_at = 'epoch' $$;
CREATE FUNCTION pg_temp.idle_for(queue text, by interval) RETURNS void
LANGUAGE sql AS $$
    UPDATE queen.log_partitions AS p SET last_write_at = last_write_at - by
      FROM queen.queues AS q WHERE q.id = p.queue_id AND q.name = queue;
$$;

-- A pop that finds something has no business with it, nor has a pinned pop.
SELECT base_offset FROM pg_temp.push('q', 'p', 'a');
SELECT ids FROM pg_temp.pop('q');
SELECT status FROM pg_temp.pop('q', 'p');
SELECT * FROM pg_temp.watermarks;

-- V-29: polls while all of the backlog is leased do not hide it, also when it is old.
SELECT pg_temp.idle_for('q', '10 minutes');
SELECT status FROM pg_temp.pop('q');
SELECT * FROM pg_temp.watermarks;
SELECT pg_temp.half_a_minute_later();
SELECT status FROM pg_temp.pop('q');
SELECT * FROM pg_temp.watermarks;
SELECT pg_temp.expire('q');
SELECT ids FROM pg_temp.pop('q', worker => 2);
-- The same with a backlog that is deferred.
SELECT queen.log_configure(pg_temp.tenant(), 'late', NULL, NULL, '{"delayedProcessing": 3600}', 'merge') -> 'configured';
SELECT base_offset FROM pg_temp.push('late', 'p', 'a');
SELECT pg_temp.idle_for('late', '10 minutes');
SELECT status FROM pg_temp.pop('late');
SELECT pg_temp.half_a_minute_later();
SELECT status FROM pg_temp.pop('late');
SELECT * FROM pg_temp.watermarks WHERE name = 'late';
SELECT pg_temp.age('late', 'p', '1 hour');
SELECT ids FROM pg_temp.pop('late');

-- With nothing pending it moves, at most every 30 seconds.
SELECT success FROM pg_temp.ack('q', 'p', 2, '{a}');
UPDATE queen.consumer_watermarks SET updated_at = clock_timestamp();
SELECT status FROM pg_temp.pop('q');
SELECT * FROM pg_temp.watermarks WHERE name = 'q';
SELECT pg_temp.half_a_minute_later();
SELECT status FROM pg_temp.pop('q');
SELECT * FROM pg_temp.watermarks WHERE name = 'q';

-- From then on the search passes over what was written more than two minutes before it ...
SELECT base_offset FROM pg_temp.push('q', 'p', 'b');
SELECT pg_temp.idle_for('q', '3 minutes');
SELECT status FROM pg_temp.pop('q');
-- ... but two minutes of slack remain, and whoever rewinds a cursor deletes the row.
UPDATE queen.log_partitions SET last_write_at = clock_timestamp() - interval '100 seconds'
 WHERE id = pg_temp.partition_id('q', 'p');
SELECT ids FROM pg_temp.pop('q');
SELECT pg_temp.expire('q'), pg_temp.idle_for('q', '1 hour');
SELECT status FROM pg_temp.pop('q');
DELETE FROM queen.consumer_watermarks;
SELECT ids FROM pg_temp.pop('q');
-- A pinned pop does not search.
SELECT pg_temp.expire('q');
UPDATE queen.consumer_watermarks SET last_empty_scan_at = clock_timestamp();
SELECT ids FROM pg_temp.pop('q', 'p');
