-- Push: offsets, stamps, order, what is written, and what each entry answers.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.push_all(queues text[], partitions text[], blobs bytea[], hashes bytea[],
                                 counts int[], wait boolean DEFAULT true)
RETURNS TABLE (entry int, status text, partition_id uuid, base_offset bigint,
               created_at timestamptz, duplicate_frames int[], duplicate_ids uuid[], error text)
LANGUAGE sql AS $$
    SELECT * FROM queen.log_push(array_fill(pg_temp.tenant(), ARRAY[cardinality(queues)]), queues,
                                 partitions, counts, hashes, blobs, wait);
$$;

-- A partition that is not there is the caller's to create.
SELECT entry, status FROM pg_temp.push_all('{q}', '{p}', ARRAY[pg_temp.segment('{a}'::text[])],
                                           ARRAY[pg_temp.hashes('{a}')], '{1}');

-- The first message has offset 0; a segment takes as many as it holds.
SELECT status, base_offset, duplicate_frames, duplicate_ids, error FROM pg_temp.push('q', 'p', 'a');
SELECT status, base_offset FROM pg_temp.push('q', 'p', 'b', 'c', 'd');
SELECT status, base_offset FROM pg_temp.push('q', 'p', 'e');

-- Several entries in one call: answered in entry order; those of one partition get consecutive
-- ranges in that order; the others have nothing to do with them.
SELECT queen.log_provision(ARRAY[pg_temp.tenant(), pg_temp.tenant()], '{q,r}', '{p2,p}');
SELECT entry, status, base_offset, partition_id = pg_temp.partition_id('q', 'p') AS in_qp
  FROM pg_temp.push_all('{q,r,q,q,q}', '{p,p,p2,p,p}',
                        ARRAY[pg_temp.segment('{f,g}'::text[]), pg_temp.segment('{a}'::text[]),
                              pg_temp.segment('{a}'::text[]), pg_temp.segment('{h}'::text[]),
                              pg_temp.segment('{i,j,k}'::text[])],
                        ARRAY[pg_temp.hashes('{f,g}'), pg_temp.hashes('{a}'), pg_temp.hashes('{a}'),
                              pg_temp.hashes('{h}'), pg_temp.hashes('{i,j,k}')],
                        '{2,1,1,1,3}');

-- What is written: the segment, its sidecar row with the same range and stamp, the watermarks.
SELECT s.base_offset, s.end_offset, t.end_offset = s.end_offset AS range,
       t.created_at = s.created_at AS stamp,
       (SELECT string_agg((queen.log_frame(s.blob, i)).transaction_id, ',' ORDER BY i)
          FROM generate_series(0, (s.end_offset - s.base_offset)::int) AS i) AS ids
  FROM queen.log_segments AS s JOIN queen.log_txns AS t USING (partition_id, base_offset)
 WHERE s.partition_id = pg_temp.partition_id('q', 'p')
 ORDER BY s.base_offset;
SELECT p.last_offset, p.log_start, p.txns_start, p.segments,
       p.bytes = (SELECT sum(length(s.blob)) FROM queen.log_segments AS s WHERE s.partition_id = p.id) AS bytes,
       p.last_created_at = (SELECT max(s.created_at) FROM queen.log_segments AS s WHERE s.partition_id = p.id) AS stamp
  FROM queen.log_partitions AS p WHERE p.id = pg_temp.partition_id('q', 'p');

-- V-02: ranges without hole or overlap from 0 to the last offset.
-- V-03: each segment is sound, as long as its range, and the sidecar holds its hashes.
-- V-04: stamps ascend with the offsets.
CREATE FUNCTION pg_temp.violations() RETURNS TABLE (property text, partition_id uuid, base_offset bigint)
LANGUAGE sql AS $$
    WITH log AS (
        SELECT s.*, p.last_offset,
               lag(s.end_offset, 1, -1) OVER w AS previous_end, lag(s.created_at) OVER w AS previous_stamp,
               lead(s.base_offset) OVER w AS next
          FROM queen.log_segments AS s JOIN queen.log_partitions AS p ON p.id = s.partition_id
        WINDOW w AS (PARTITION BY s.partition_id ORDER BY s.base_offset)
    )
    SELECT 'V-02', partition_id, base_offset FROM log
     WHERE base_offset <> previous_end + 1 OR next IS NULL AND end_offset <> last_offset
    UNION ALL
    SELECT 'V-03', s.partition_id, s.base_offset
      FROM queen.log_segments AS s LEFT JOIN queen.log_txns AS t USING (partition_id, base_offset)
     WHERE CASE WHEN queen.log_segment_error(s.blob, (s.end_offset - s.base_offset + 1)::int) IS NULL
                THEN (t.end_offset, t.created_at, t.hashes) IS DISTINCT FROM
                     (s.end_offset, s.created_at, queen.log_segment_hashes(s.blob))
                ELSE true END
    UNION ALL
    SELECT 'V-04', partition_id, base_offset FROM log WHERE created_at <= previous_stamp;
$$;
SELECT * FROM pg_temp.violations();

-- Bad entries answer for themselves; their neighbours are stored.
SELECT entry, status, base_offset, error
  FROM queen.log_push(
        ARRAY[pg_temp.tenant(), pg_temp.tenant(), NULL, pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant(),
              pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant(),
              pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant(), pg_temp.tenant()],
        ARRAY['q', NULL, 'q', 'q', 'q', 'q', 'q', 'q', 'q', E'\x1f', 'q', 'q', 'q', 'nowhere', 'q'],
        ARRAY['p', 'p', 'p', NULL, '', repeat('x', 256), 'p', 'p', 'p', 'p', 'p', 'p', 'p', 'p', 'p'],
        ARRAY[1, 1, 1, 1, 1, 1, 0, NULL, 10001, 1, 2, 2, 1, 1, 1],
        ARRAY[queen.log_hash('l'), queen.log_hash('x'), queen.log_hash('x'), queen.log_hash('x'),
              queen.log_hash('x'), queen.log_hash('x'), '', queen.log_hash('x'),
              decode(repeat('00', 160016), 'hex'), queen.log_hash('x'), queen.log_hash('x'),
              pg_temp.hashes('{x,x}'), NULL, queen.log_hash('x'), queen.log_hash('m')],
        ARRAY['\x01', '\x01', '\x01', '\x01', '\x01', '\x01', '\x01', '\x01', '\x01', '\x01', '\x01',
              '\x01', '\x01', '\x01', '\x01']::bytea[], true);
SELECT entry, status, base_offset, error
  FROM pg_temp.push_all('{q,q,q}', '{p,p,p}', ARRAY[NULL, '', '\x01']::bytea[],
                        ARRAY[queen.log_hash('n'), queen.log_hash('n'), queen.log_hash('n')], '{1,1,1}');
-- The longest segment there is.
SELECT status, base_offset
  FROM pg_temp.push_all('{q}', '{p2}', ARRAY['\x01']::bytea[],
                        ARRAY[(SELECT string_agg(queen.log_hash(i::text), '') FROM generate_series(1, 10000) AS i)],
                        '{10000}');
SELECT last_offset FROM queen.log_partitions WHERE id = pg_temp.partition_id('q', 'p2');

-- The tenant is part of the name.
SELECT status FROM queen.log_push(ARRAY['00000000-0000-0000-0000-000000000002']::uuid[], '{q}', '{p}', '{1}',
                                  ARRAY[queen.log_hash('o')], ARRAY['\x01']::bytea[], true);

-- Arguments that fit no entry fail the call.
\set VERBOSITY sqlstate
SELECT * FROM pg_temp.push_all('{q}', '{p,p}', ARRAY['\x01']::bytea[], ARRAY[queen.log_hash('o')], '{1}');
SELECT * FROM pg_temp.push_all('{q}', '{p}', NULL, ARRAY[queen.log_hash('o')], '{1}');
\set VERBOSITY default
SELECT count(*) FROM queen.log_push('{}', '{}', '{}', '{}', '{}', '{}', true);

-- V-05: a push that is rolled back, or that fails, leaves nothing.
SELECT last_offset AS before FROM queen.log_partitions WHERE id = pg_temp.partition_id('r', 'p') \gset
BEGIN;
SELECT status, base_offset FROM pg_temp.push('r', 'p', 'gone1', 'gone2');
SAVEPOINT s;
SELECT status, base_offset FROM pg_temp.push('r', 'p', 'gone3');
ROLLBACK TO s;
SELECT status, base_offset FROM pg_temp.push('r', 'p', 'gone3', 'gone4');
ROLLBACK;
SELECT p.last_offset = :before AS same, p.segments, count(s.*) AS rows, count(t.*) AS sidecar
  FROM queen.log_partitions AS p
  LEFT JOIN queen.log_segments AS s ON s.partition_id = p.id
  LEFT JOIN queen.log_txns AS t ON t.partition_id = s.partition_id AND t.base_offset = s.base_offset
 WHERE p.id = pg_temp.partition_id('r', 'p') GROUP BY p.id;
-- The ids that went with it are new.
SELECT status, base_offset FROM pg_temp.push('r', 'p', 'gone1', 'gone2');

-- V-04: a stamp follows the newest one even when the clock has stepped back by an hour.
UPDATE queen.log_partitions SET last_created_at = clock_timestamp() + interval '1 hour'
 WHERE id = pg_temp.partition_id('r', 'p') RETURNING last_created_at AS future \gset
SELECT v.created_at = :'future'::timestamptz + interval '1 microsecond' AS next_microsecond
  FROM pg_temp.push('r', 'p', 'later') AS v;
SELECT v.created_at = :'future'::timestamptz + interval '2 microseconds' AS next_microsecond
  FROM pg_temp.push('r', 'p', 'later still') AS v;
-- The stamp is the clock's after the lock, not the transaction's.
BEGIN;
SELECT created_at > now() AS after_start FROM pg_temp.push('q', 'p', 'p');
COMMIT;

-- V-06: of many pushes within ten seconds one at most writes an indexed column; the rest are HOT.
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT pg_temp.partition_id('q', 'hot') IS NULL AS absent, (pg_temp.push('q', 'hot', 'h0')).status;
SELECT last_write_at AS written FROM queen.log_partitions WHERE id = pg_temp.partition_id('q', 'hot') \gset
SELECT count(*) FROM generate_series(1, 30) AS i, pg_temp.push('q', 'hot', 'h' || i) AS v WHERE v.status = 'queued';
SELECT last_write_at = :'written' OR last_write_at > :'written'::timestamptz + interval '10 seconds' AS spaced
  FROM queen.log_partitions WHERE id = pg_temp.partition_id('q', 'hot');
SELECT n_tup_upd, n_tup_hot_upd > 25 AS hot FROM pg_stat_xact_user_tables
 WHERE relid = 'queen.log_partitions'::regclass;
ROLLBACK;
-- More than ten seconds later the time is written.
UPDATE queen.log_partitions SET last_write_at = last_write_at - interval '1 minute'
 WHERE id = pg_temp.partition_id('q', 'p');
SELECT (pg_temp.push('q', 'p', 'q')).status;
SELECT last_write_at = last_created_at AS written FROM queen.log_partitions
 WHERE id = pg_temp.partition_id('q', 'p');

-- Only READ COMMITTED, and no two-phase commit.
\set VERBOSITY sqlstate
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.push('q', 'p', 'r');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT pg_temp.push('q', 'p', 'r');
ROLLBACK;
BEGIN;
SELECT (pg_temp.push('q', 'p', 'r')).status;
PREPARE TRANSACTION 'queen';
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT (pg_temp.push('q', 'p', 'r')).status;
ROLLBACK TO s;
PREPARE TRANSACTION 'queen';
ROLLBACK;
\set VERBOSITY default
BEGIN;
SELECT (pg_temp.push('q', 'p', 'r')).status;
COMMIT;

-- No clear text for an encrypted queue, not one message of it; neighbours are stored, and what is
-- encrypted may stand anywhere. A segment that cannot be read may hold clear text.
SELECT queen.log_configure(pg_temp.tenant(), 'secret', NULL, NULL, '{"encryptionEnabled": true}', 'merge') IS NOT NULL;
CREATE FUNCTION pg_temp.flagged(VARIADIC flags int[]) RETURNS bytea LANGUAGE sql AS $$
    SELECT pg_temp.segment(string_agg(pg_temp.frame(convert_to('m' || i, 'UTF8'), '1', gen_random_uuid(), NULL, NULL, f), ''
                                      ORDER BY i))
      FROM unnest(flags) WITH ORDINALITY AS u (f, i);
$$;
SELECT queen.log_provision(array_fill(pg_temp.tenant(), '{6}'), '{secret,secret,secret,secret,plain,secret}', '{a,b,c,d,p,e}');
SELECT entry, status, base_offset, error
  FROM queen.log_push(array_fill(pg_temp.tenant(), '{6}'), '{secret,secret,secret,secret,plain,secret}', '{a,b,c,d,p,e}',
                      '{2,2,2,2,2,2}', array_fill(pg_temp.hashes('{m1,m2}'), '{6}'),
                      ARRAY[pg_temp.flagged(0, 0), pg_temp.flagged(4, 0), pg_temp.flagged(0, 4), pg_temp.flagged(4, 4),
                            pg_temp.flagged(4, 0), '\x00'::bytea], false);
SELECT name, last_offset FROM queen.log_partitions
 WHERE queue_id = (SELECT id FROM queen.queues WHERE name = 'secret') ORDER BY name;

-- After all this: the four blobs of one byte are what is left to object to. Push does not look inside.
SELECT property, count(*) FROM pg_temp.violations() GROUP BY property;

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;
