-- Deduplication: what a session remembers of the windows it pushed into never hides a duplicate.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never

LOAD 'queen';
SHOW queen.dedup_memory;

CREATE FUNCTION pg_temp.window(seconds int) RETURNS void LANGUAGE sql AS $$
    SELECT queen.log_configure(pg_temp.tenant(), 'q', NULL, NULL,
                               jsonb_build_object('dedupWindowSeconds', seconds), 'merge');
$$;
CREATE FUNCTION pg_temp.push_each(VARIADIC ids text[]) RETURNS TABLE (id text, status text, base_offset bigint)
LANGUAGE sql AS $$
    SELECT i.id, v.status, v.base_offset
      FROM unnest(ids) WITH ORDINALITY AS i (id, n), LATERAL pg_temp.push('q', 'p', i.id) AS v ORDER BY n;
$$;

-- What was read and then rolled back is forgotten: its offsets are given out again. While the window
-- is off nothing is read, so that the session meets them again only when the log has grown past them.
BEGIN;
SELECT * FROM pg_temp.push_each('a');
SAVEPOINT s;
SELECT * FROM pg_temp.push_each('b', 'c', 'd');
ROLLBACK TO s;
SELECT pg_temp.window(0);
SELECT * FROM pg_temp.push_each('e', 'f', 'g', 'h');
SELECT pg_temp.window(3600);
SELECT * FROM pg_temp.push_each('e', 'f', 'g', 'h', 'b');
COMMIT;
BEGIN;
SELECT * FROM pg_temp.push_each('i', 'j', 'k');
ROLLBACK;
SELECT pg_temp.window(0);
SELECT * FROM pg_temp.push_each('l', 'm', 'n', 'o');
SELECT pg_temp.window(3600);
SELECT * FROM pg_temp.push_each('l', 'm', 'n', 'o', 'i');
-- An exception that is caught ends a savepoint as well.
DO $$
BEGIN
    PERFORM pg_temp.push_each('p', 'q', 'r');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    PERFORM pg_temp.window(0);
    PERFORM pg_temp.push_each('s', 't', 'u', 'v');
    PERFORM pg_temp.window(3600);
END
$$;
SELECT * FROM pg_temp.push_each('s', 't', 'u', 'v', 'p');
-- Without a window in between, too.
BEGIN;
SELECT * FROM pg_temp.push_each('w', 'x');
ROLLBACK;
SELECT * FROM pg_temp.push_each('y', 'w', 'y', 'w', 'x');

-- Rows that were outside the window when the session first read count when the window grows.
SELECT pg_temp.window(0);
SELECT * FROM pg_temp.push_each('aged', 'aged2');
UPDATE queen.log_txns SET created_at = created_at - interval '200000 seconds'
 WHERE partition_id = pg_temp.partition_id('q', 'p');
SELECT pg_temp.window(100000);
BEGIN;
SELECT * FROM pg_temp.push_each('forgotten with this transaction');
ROLLBACK;
SELECT * FROM pg_temp.push_each('young');
SELECT pg_temp.window(1000000);
SELECT * FROM pg_temp.push_each('aged', 'a', 'young', 'aged2');

-- An id in many rows, as it gets there while the window is off: the first of them is the original,
-- in however many blocks of the sidecar it is. Others are found beside it.
CREATE FUNCTION pg_temp.often(times int) RETURNS TABLE (id text, status text, original bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queen.log_configure(pg_temp.tenant(), 'often', NULL, NULL, '{"dedupWindowSeconds": 0}', 'merge');
    PERFORM pg_temp.push('often', 'p' || times, 'before');
    PERFORM pg_temp.push('often', 'p' || times, 'same') FROM generate_series(1, times);
    PERFORM pg_temp.push('often', 'p' || times, 'after');
    PERFORM queen.log_configure(pg_temp.tenant(), 'often', NULL, NULL, '{"dedupWindowSeconds": 3600}', 'merge');
    UPDATE queen.log_segments AS s
       SET blob = pg_temp.segment(pg_temp.frame('m', '1', ('00000000-0000-0000-0000-' || lpad(base_offset::text, 12, '0'))::uuid))
      FROM queen.log_partitions AS p WHERE p.id = s.partition_id AND p.name = 'p' || times;
    RETURN QUERY SELECT i, v.status, right(v.duplicate_ids[1]::text, 12)::bigint
                   FROM unnest('{same,before,after,new}'::text[]) AS i, pg_temp.push('often', 'p' || times, i) AS v;
END
$$;
SELECT times, o.* FROM unnest('{1,100,450,700}'::int[]) AS times, pg_temp.often(times) AS o;

-- Offsets so far apart that their blocks have the same number in the set.
SELECT status, base_offset FROM pg_temp.push('far', 'p', 'first');
UPDATE queen.log_partitions SET last_offset = 64 * (2^24 - 1)::bigint WHERE id = pg_temp.partition_id('far', 'p');
SELECT status, base_offset FROM pg_temp.push('far', 'p', 'second');
UPDATE queen.log_partitions SET last_offset = 64 * 3 * (2^24 - 1)::bigint + 70 WHERE id = pg_temp.partition_id('far', 'p');
SELECT status, base_offset FROM pg_temp.push('far', 'p', 'third');
SELECT id, v.status, v.duplicate_ids[1] = md5(id)::uuid AS original
  FROM unnest('{first,second,third,fourth}'::text[]) AS id, pg_temp.push('far', 'p', id) AS v;

-- More hashes than the set starts with, in segments of the greatest length, past the point where it
-- is built afresh. The first, the last and one in the middle are known; another id is not.
CREATE FUNCTION pg_temp.push_range(partition text, first int, last int) RETURNS SETOF queen.push_verdict
LANGUAGE sql AS $$
    SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{large}', ARRAY[partition]);
    SELECT v.* FROM queen.log_push(ARRAY[pg_temp.tenant()], '{large}', ARRAY[partition], ARRAY[last - first + 1],
                                   ARRAY[(SELECT string_agg(queen.log_hash(i::text), '' ORDER BY i)
                                            FROM generate_series(first, last) AS i)],
                                   ARRAY['\x01']::bytea[], true) AS v;
$$;
CREATE FUNCTION pg_temp.probe(partition text) RETURNS TABLE (id int, status text, frames int[]) LANGUAGE sql AS $$
    SELECT i, v.status, v.duplicate_frames
      FROM unnest('{70001,80000,100000}'::int[]) AS i, pg_temp.push_range(partition, i, i) AS v
    UNION ALL
    SELECT i, v.status, v.duplicate_frames FROM pg_temp.push_range(partition, 99999, 100002) AS v, unnest('{99999}'::int[]) AS i;
$$;
SELECT count(*) FROM generate_series(0, 9) AS n, pg_temp.push_range('fits', n * 10000 + 1, n * 10000 + 10000) AS v
 WHERE v.status = 'queued';
SELECT * FROM pg_temp.probe('fits');
SELECT (pg_temp.push_range('fits', 100001, 100001)).status;

-- The same where they do not fit, and for more partitions than do.
SET queen.dedup_memory = '64kB';
SELECT count(*) FROM generate_series(7, 9) AS n, pg_temp.push_range('large', n * 10000 + 1, n * 10000 + 10000) AS v
 WHERE v.status = 'queued';
SELECT * FROM pg_temp.probe('large');
SELECT v.status, count(*) FROM generate_series(1, 200) AS n, pg_temp.push('many', 'p' || n, 'a', 'b') AS v GROUP BY 1;
SELECT v.status, count(*) FROM generate_series(1, 200) AS n, pg_temp.push('many', 'p' || n, 'b') AS v GROUP BY 1;
SELECT v.status, count(*) FROM generate_series(1, 200) AS n, pg_temp.push('many', 'p' || n, 'c') AS v GROUP BY 1;
SELECT v.status, count(*) FROM generate_series(200, 1, -1) AS n, pg_temp.push('many', 'p' || n, 'c') AS v GROUP BY 1;
SET ROLE queen_frontend;
SET queen.dedup_memory = '1MB';
RESET ROLE;

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;
