-- Corrupt segments: V-93, skipped by an explicit step, while the neighbours are delivered.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
CREATE FUNCTION pg_temp.quarantine(queue text, part text, worker int, base bigint, tenant uuid DEFAULT pg_temp.tenant())
RETURNS TABLE (status text, batch_end bigint)
LANGUAGE sql AS $$
    SELECT * FROM queen.log_quarantine(tenant, pg_temp.partition_id(queue, part), '__QUEUE_MODE__', pg_temp.worker(worker), base);
$$;
-- The partition's id stands in the error.
CREATE FUNCTION pg_temp.filed(queue text, part text)
RETURNS TABLE ("offset" bigint, transaction_id text, payload bytea, error text, retry_count int)
LANGUAGE sql AS $$
    SELECT "offset", transaction_id, payload, replace(error, partition_id::text, 'PARTITION'), retry_count
      FROM queen.log_dlq WHERE partition_id = pg_temp.partition_id(queue, part) ORDER BY failed_at;
$$;
-- Each finding is a WARNING that names the partition by its id, which differs from run to run.
SET client_min_messages = error;
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b');
SELECT base_offset FROM pg_temp.push('q', 'p', 'c', 'd');
SELECT base_offset FROM pg_temp.push('q', 'p', 'e', 'f');

-- A pop does not look into the blobs; a sound one stays where it is.
SELECT pg_temp.corrupt('q', 'p', 2);
SELECT status, base_offset, first_offset, last_offset FROM pg_temp.pop_rows('q', batch => 5);
SELECT * FROM pg_temp.quarantine('q', 'p', 1, 0);
-- With messages in front of it the lease is cut, and nothing is filed yet.
SELECT * FROM pg_temp.quarantine('q', 'p', 1, 2);
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.filed('q', 'p');
SELECT * FROM pg_temp.quarantine('q', 'p', 1, 2);
SELECT * FROM pg_temp.ack('q', 'p', 1, '{b}');
-- At the head it is skipped: one dead letter for the range, the segment stays, the rest of the
-- batch is leased still.
SELECT status, base_offset, first_offset, last_offset FROM pg_temp.pop_rows('q', worker => 2, batch => 3);
SELECT * FROM pg_temp.quarantine('q', 'p', 2, 2);
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.filed('q', 'p');
SELECT count(*) FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('q', 'p') AND base_offset = 2;
SELECT * FROM pg_temp.quarantine('q', 'p', 2, 2);
-- When that lease runs out, the rest of the batch comes again.
SELECT pg_temp.expire('q');
SELECT first, attempt, ids FROM pg_temp.pop('q', worker => 2, batch => 1);
SELECT * FROM pg_temp.ack('q', 'p', 2, '{e}');
SELECT consumed, committed + 1 AS passed FROM pg_temp.cursors('q');

-- Alone in its batch it ends the lease; also when the batch ended inside of it, or began there.
SELECT base_offset FROM pg_temp.push('one', 'p', 'a', 'b', 'c');
SELECT base_offset FROM pg_temp.push('one', 'p', 'd');
SELECT pg_temp.pop('one', batch => 1, auto => true);
SELECT pg_temp.corrupt('one', 'p', 0);
SELECT status, base_offset, first_offset, last_offset FROM pg_temp.pop_rows('one', batch => 1);
SELECT * FROM pg_temp.quarantine('one', 'p', 1, 0);
SELECT * FROM pg_temp.cursors('one');
SELECT * FROM pg_temp.filed('one', 'p');
SELECT ids FROM pg_temp.pop('one');

-- A gap in front of it is nothing that is delivered.
SELECT base_offset FROM pg_temp.push('gap', 'p', 'a');
SELECT base_offset FROM pg_temp.push('gap', 'p', 'b');
SELECT pg_temp.corrupt('gap', 'p', 1);
SELECT status, first_offset, last_offset FROM pg_temp.pop_rows('gap');
SELECT pg_temp.retain_from('gap', 'p', 1);
SELECT * FROM pg_temp.quarantine('gap', 'p', 1, 1);
SELECT * FROM pg_temp.cursors('gap');

-- Auto-acked: the cursor has moved already, the dead letter is filed.
SELECT base_offset FROM pg_temp.push('auto', 'p', 'a');
SELECT pg_temp.corrupt('auto', 'p', 0);
SELECT * FROM queen.log_quarantine(pg_temp.tenant(), pg_temp.partition_id('auto', 'p'), '__QUEUE_MODE__', NULL, 0);
SELECT status, first_offset FROM pg_temp.pop_rows('auto', auto => true);
SELECT * FROM queen.log_quarantine(pg_temp.tenant(), pg_temp.partition_id('auto', 'p'), '__QUEUE_MODE__', NULL, 0);
SELECT * FROM pg_temp.cursors('auto');
SELECT * FROM pg_temp.filed('auto', 'p');

-- Without the lease, the segment, or the right tenant, nothing is touched.
SELECT base_offset FROM pg_temp.push('gone', 'p', 'a');
SELECT base_offset FROM pg_temp.push('gone', 'p', 'b');
SELECT pg_temp.corrupt('gone', 'p', 0), pg_temp.corrupt('gone', 'p', 1);
SELECT status FROM pg_temp.pop_rows('gone', batch => 1);
SELECT * FROM pg_temp.quarantine('gone', 'p', 2, 0);
SELECT * FROM pg_temp.quarantine('gone', 'p', 1, 1);
SELECT * FROM pg_temp.quarantine('gone', 'p', 1, 7);
SELECT * FROM pg_temp.quarantine('gone', 'nowhere', 1, 0);
SELECT * FROM pg_temp.quarantine('gone', 'p', 1, 0, '00000000-0000-0000-0000-000000000002');
SELECT pg_temp.expire('gone');
SELECT * FROM pg_temp.quarantine('gone', 'p', 1, 0);
SELECT * FROM pg_temp.cursors('gone');
SELECT * FROM pg_temp.filed('gone', 'p');

-- Every kind of damage to the row is seen.
SELECT count(*) FROM generate_series(1, 4) AS i, pg_temp.push('kinds', 'p' || i, 'a', 'b');
SELECT count(*) FROM pg_temp.pop_rows('kinds', partitions => 0);
UPDATE queen.log_segments AS s
   SET blob = CASE p.name WHEN 'p1' THEN '' WHEN 'p2' THEN substring(s.blob FOR length(s.blob) - 1)
                          WHEN 'p3' THEN pg_temp.segment('{a}'::text[]) ELSE s.blob || '\x00' END
  FROM queen.log_partitions AS p
 WHERE p.id = s.partition_id AND p.queue_id = (SELECT id FROM queen.queues WHERE name = 'kinds');
SELECT p, q.* FROM unnest('{p1,p2,p3,p4}'::text[]) AS p, pg_temp.quarantine('kinds', p, 1, 0) AS q;
SELECT * FROM pg_temp.cursors('kinds');
