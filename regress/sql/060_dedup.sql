-- Deduplication: what counts as a duplicate, and what a duplicate answers.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.configure(queue text, options jsonb) RETURNS void LANGUAGE sql AS $$
    SELECT queen.log_configure(pg_temp.tenant(), queue, NULL, NULL, options, 'merge');
$$;
CREATE FUNCTION pg_temp.ids(queue text, partition text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg((queen.log_frame(s.blob, i)).transaction_id, ' ' ORDER BY s.base_offset, i)
      FROM queen.log_segments AS s, generate_series(0, (s.end_offset - s.base_offset)::int) AS i
     WHERE s.partition_id = pg_temp.partition_id(queue, partition);
$$;

-- V-10: the same id twice inside the window is one message, and the answer names the original.
SELECT status, base_offset FROM pg_temp.push('q', 'p', 'a', 'b', 'c');
SELECT status, base_offset, partition_id, created_at, duplicate_frames, duplicate_ids = ARRAY[md5('b')::uuid] AS original
  FROM pg_temp.push('q', 'p', 'b');
SELECT pg_temp.ids('q', 'p');

-- V-12: one duplicate keeps the whole segment out; without it, the others go in, in order.
SELECT status, duplicate_frames,
       duplicate_ids = ARRAY[md5('c')::uuid, md5('a')::uuid] AS originals
  FROM pg_temp.push('q', 'p', 'd', 'c', 'e', 'a');
SELECT status, base_offset FROM pg_temp.push('q', 'p', 'd', 'e');
SELECT pg_temp.ids('q', 'p');

-- Frames of several segments, ascending.
SELECT status, duplicate_frames,
       duplicate_ids = ARRAY[md5('e')::uuid, md5('a')::uuid, md5('d')::uuid] AS originals
  FROM pg_temp.push('q', 'p', 'e', 'x', 'a', 'd');

-- V-11: two entries of one call: the second sees the first, and a third that repeats only the
-- second is new, because that one was not stored.
SELECT v.entry, v.status, v.base_offset, v.duplicate_frames, v.duplicate_ids = ARRAY[md5('f')::uuid] AS original
  FROM queen.log_push(array_fill(pg_temp.tenant(), ARRAY[4]), '{q,q,q,q}', '{p,p,p,p}', '{1,2,1,1}',
                      ARRAY[pg_temp.hashes('{f}'), pg_temp.hashes('{f,g}'), pg_temp.hashes('{g}'), pg_temp.hashes('{f}')],
                      ARRAY[pg_temp.segment('{f}'::text[]), pg_temp.segment('{f,g}'::text[]),
                            pg_temp.segment('{g}'::text[]), pg_temp.segment('{f}'::text[])], true) AS v;
SELECT pg_temp.ids('q', 'p');
-- Inside one transaction as well.
BEGIN;
SELECT status FROM pg_temp.push('q', 'p', 'h');
SELECT status FROM pg_temp.push('q', 'p', 'h');
SAVEPOINT s;
SELECT status FROM pg_temp.push('q', 'p', 'i');
ROLLBACK TO s;
SELECT status FROM pg_temp.push('q', 'p', 'i');
ROLLBACK;
SELECT status FROM pg_temp.push('q', 'p', 'i');
SELECT status FROM pg_temp.push('q', 'p', 'i');

-- V-14: the same id in two partitions is two messages, and so in two queues of one name.
SELECT status FROM pg_temp.push('q', 'p2', 'a');
SELECT status FROM pg_temp.push('q2', 'p', 'a');
-- V-14: a message that retention has deleted is still known; its id cannot be read any more.
DELETE FROM queen.log_segments WHERE partition_id = pg_temp.partition_id('q', 'p') AND base_offset = 0;
UPDATE queen.log_partitions SET log_start = 3 WHERE id = pg_temp.partition_id('q', 'p');
SELECT status, duplicate_frames, duplicate_ids FROM pg_temp.push('q', 'p', 'a', 'new');
-- The same for a segment that does not decode, beside one that does.
UPDATE queen.log_segments SET blob = set_byte(blob, 12, 255) WHERE partition_id = pg_temp.partition_id('q', 'p') AND base_offset = 3;
SELECT status, duplicate_frames,
       duplicate_ids = ARRAY['00000000-0000-0000-0000-000000000000', md5('f')]::uuid[] AS originals
  FROM pg_temp.push('q', 'p', 'd', 'f');

-- V-13: after the window the id is new, whether its row is still there or was purged.
SELECT pg_temp.configure('w', '{"dedupWindowSeconds": 100000}');
SELECT status FROM pg_temp.push('w', 'p', 'old', 'purged');
SELECT status FROM pg_temp.push('w', 'p', 'young');
UPDATE queen.log_txns SET created_at = created_at - interval '100001 seconds'
 WHERE partition_id = pg_temp.partition_id('w', 'p') AND base_offset = 0;
UPDATE queen.log_txns SET created_at = created_at - interval '50000 seconds'
 WHERE partition_id = pg_temp.partition_id('w', 'p') AND base_offset = 2;
SELECT status, base_offset, duplicate_frames FROM pg_temp.push('w', 'p', 'young', 'old');
SELECT status, base_offset FROM pg_temp.push('w', 'p', 'old');
-- The hash is now at two offsets; a wider window finds the older one first.
SELECT status, duplicate_frames FROM pg_temp.push('w', 'p', 'old');
UPDATE queen.log_segments SET blob = pg_temp.segment(pg_temp.frame('old', '1', md5('second')::uuid))
 WHERE partition_id = pg_temp.partition_id('w', 'p') AND base_offset = 3;
SELECT duplicate_ids = ARRAY[md5('second')::uuid] AS newer FROM pg_temp.push('w', 'p', 'old');
SELECT pg_temp.configure('w', '{"dedupWindowSeconds": 1000000}');
SELECT duplicate_ids = ARRAY[md5('old')::uuid] AS older FROM pg_temp.push('w', 'p', 'old');
SELECT status FROM pg_temp.push('w', 'p', 'purged');
-- Rows below txns_start do not count even while they exist.
UPDATE queen.log_partitions SET txns_start = 2 WHERE id = pg_temp.partition_id('w', 'p');
SELECT status FROM pg_temp.push('w', 'p', 'purged');
DELETE FROM queen.log_txns WHERE partition_id = pg_temp.partition_id('w', 'p');
UPDATE queen.log_partitions SET txns_start = last_offset + 1 WHERE id = pg_temp.partition_id('w', 'p');
SELECT status FROM pg_temp.push('w', 'p', 'purged');

-- V-13, V-15: with window 0 it is new at once, and the sidecar is written all the same.
SELECT pg_temp.configure('off', '{"dedupWindowSeconds": 0}');
SELECT status, base_offset FROM pg_temp.push('off', 'p', 'a');
SELECT status, base_offset FROM pg_temp.push('off', 'p', 'a');
SELECT base_offset, hashes = queen.log_hash('a') AS hash FROM queen.log_txns
 WHERE partition_id = pg_temp.partition_id('off', 'p') ORDER BY base_offset;
-- A window that is switched on later counts what is there: the lowest offset is the original.
SELECT pg_temp.configure('off', '{"dedupWindowSeconds": 60}');
UPDATE queen.log_segments SET blob = pg_temp.segment(pg_temp.frame('a', '1', md5('second')::uuid))
 WHERE partition_id = pg_temp.partition_id('off', 'p') AND base_offset = 1;
SELECT status, duplicate_ids = ARRAY[md5('a')::uuid] AS first FROM pg_temp.push('off', 'p', 'a');

-- What was rolled back is forgotten, also when the push did not have to look at the sidecar.
SELECT status FROM pg_temp.push('idle', 'p', 'a');
SELECT status FROM pg_temp.push('idle', 'p', 'b');
DELETE FROM queen.log_txns WHERE partition_id = pg_temp.partition_id('idle', 'p');
UPDATE queen.log_partitions SET txns_start = last_offset + 1 WHERE id = pg_temp.partition_id('idle', 'p');
BEGIN;
SELECT status, base_offset FROM pg_temp.push('idle', 'p', 'rolled back');
ROLLBACK;
SELECT status, base_offset FROM pg_temp.push('idle', 'p', 'stored');
SELECT status FROM pg_temp.push('idle', 'p', 'stored');
SELECT status, base_offset FROM pg_temp.push('idle', 'p', 'rolled back');

-- A long segment, sent again: every frame is a duplicate of its own original.
SELECT status FROM pg_temp.push('long', 'p', VARIADIC ARRAY(SELECT 'm' || i FROM generate_series(1, 1000) AS i));
SELECT v.status, cardinality(v.duplicate_frames),
       v.duplicate_frames = ARRAY(SELECT generate_series(0, 999)) AS frames,
       v.duplicate_ids = ARRAY(SELECT md5('m' || i)::uuid FROM generate_series(1, 1000) AS i) AS originals
  FROM pg_temp.push('long', 'p', VARIADIC ARRAY(SELECT 'm' || i FROM generate_series(1, 1000) AS i)) AS v;

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;
