-- What defers delivery: delay, window buffer, and the wait for a fuller batch.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE FUNCTION pg_temp.configure(queue text, options jsonb) RETURNS void
LANGUAGE sql AS $$ SELECT queen.log_configure(pg_temp.tenant(), queue, NULL, NULL, options, 'merge') $$;
-- When to try again, counted from the oldest undelivered message; rounded, because of the pause
-- after which a row that another session held is tried again.
CREATE FUNCTION pg_temp.ready_after(queue text, part text DEFAULT NULL, batch int DEFAULT 10, fill boolean DEFAULT false)
RETURNS interval
LANGUAGE sql AS $$
    SELECT date_trunc('second', r.retry_at - min(s.created_at) + interval '500 ms')
      FROM pg_temp.pop_rows(queue, part, batch => batch, fill => fill) AS r,
           queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id
           JOIN queen.log_segments AS s ON s.partition_id = p.id
           LEFT JOIN queen.log_consumers AS c ON c.partition_id = p.id AND c.consumer_group = '__QUEUE_MODE__'
     WHERE q.name = queue AND s.end_offset > coalesce(c.committed, -1)
     GROUP BY r.retry_at;
$$;

-- V-32: no message younger than the delay; each segment matures by its own stamp.
SELECT pg_temp.configure('delay', '{"delayedProcessing": 100}');
SELECT base_offset FROM pg_temp.push('delay', 'p', 'a', 'b');
SELECT * FROM pg_temp.pop('delay');
SELECT * FROM pg_temp.pop('delay', 'p');
SELECT pg_temp.ready_after('delay'), pg_temp.ready_after('delay', 'p');
-- V-28: what is only deferred is not sealed.
SELECT * FROM pg_temp.cursors('delay');
SELECT pg_temp.age('delay', 'p', '101 seconds');
SELECT base_offset FROM pg_temp.push('delay', 'p', 'c');
SELECT * FROM pg_temp.pop('delay');
SELECT * FROM pg_temp.ack('delay', 'p', 1, '{b}');
SELECT * FROM pg_temp.pop('delay');
SELECT pg_temp.ready_after('delay');
SELECT * FROM pg_temp.cursors('delay');
-- Auto-ack waits as well.
SELECT * FROM pg_temp.pop('delay', auto => true);
SELECT pg_temp.age('delay', 'p', '101 seconds');
SELECT * FROM pg_temp.pop('delay', auto => true);

-- V-32: the window holds a batch until its oldest message is W seconds old, whatever is written
-- meanwhile, or until it is full.
SELECT pg_temp.configure('window', '{"windowBuffer": 100}');
SELECT base_offset FROM pg_temp.push('window', 'p', 'a');
SELECT * FROM pg_temp.pop('window', batch => 3);
SELECT * FROM pg_temp.pop('window', 'p', batch => 3);
SELECT pg_temp.ready_after('window');
SELECT * FROM pg_temp.cursors('window');
SELECT pg_temp.age('window', 'p', '101 seconds');
SELECT base_offset FROM pg_temp.push('window', 'p', 'b');
SELECT * FROM pg_temp.pop('window', batch => 3);
SELECT * FROM pg_temp.ack('window', 'p', 1, '{b}');
SELECT base_offset FROM pg_temp.push('window', 'p', 'c', 'd');
SELECT * FROM pg_temp.pop('window', batch => 3);
SELECT base_offset FROM pg_temp.push('window', 'p', 'e');
SELECT * FROM pg_temp.pop('window', batch => 3);
SELECT * FROM pg_temp.ack('window', 'p', 1, '{e}');
-- 100 messages are a full batch for every batch size.
SELECT base_offset FROM pg_temp.push('window', 'p', VARIADIC (SELECT array_agg('m' || i) FROM generate_series(1, 99) AS i));
SELECT status FROM pg_temp.pop('window', batch => 1000);
SELECT base_offset FROM pg_temp.push('window', 'p', 'm100');
SELECT status, first, last FROM pg_temp.pop('window', batch => 1000);
-- A partition that is held does not hold the others.
SELECT base_offset FROM pg_temp.push('window', 'q', 'a', 'b', 'c');
SELECT base_offset FROM pg_temp.push('window', 'r', 'a');
SELECT * FROM pg_temp.pop('window', batch => 3, partitions => 5);

-- Delay and window together: both must be over.
SELECT pg_temp.configure('both', '{"delayedProcessing": 100, "windowBuffer": 200}');
SELECT base_offset FROM pg_temp.push('both', 'p', 'a', 'b');
SELECT pg_temp.ready_after('both', 'p'), pg_temp.ready_after('both', 'p', batch => 2);
SELECT pg_temp.age('both', 'p', '101 seconds');
SELECT status FROM pg_temp.pop('both', batch => 3);
SELECT ids FROM pg_temp.pop('both', batch => 2);

-- The wait for a fuller batch is for those who ask for it, in milliseconds, and never for one message.
SELECT pg_temp.configure('fill', '{"minPopWaitTime": 50000}');
SELECT base_offset FROM pg_temp.push('fill', 'p', 'a', 'b');
SELECT status FROM pg_temp.pop('fill', batch => 3, fill => true);
SELECT pg_temp.ready_after('fill', batch => 3, fill => true);
SELECT ids FROM pg_temp.pop('fill', batch => 2, fill => true, grp => 'g');
SELECT ids FROM pg_temp.pop('fill', batch => 1, fill => true, grp => 'h');
SELECT ids FROM pg_temp.pop('fill', batch => 3, grp => 'i');
SELECT pg_temp.age('fill', 'p', '51 seconds');
SELECT ids FROM pg_temp.pop('fill', batch => 3, fill => true);

-- A stamp ahead of the clock, which stepped back, does not hold what nothing defers.
SELECT base_offset FROM pg_temp.push('ahead', 'p', 'a');
SELECT pg_temp.age('ahead', 'p', '-1 hour');
SELECT ids FROM pg_temp.pop('ahead');
