-- What a push does with the tables itself, where other statements have the planner and the executor:
-- large values, constraints, triggers, changes of the tables under a session that knows them.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never

CREATE FUNCTION pg_temp.push_blob(blob bytea, hashes bytea) RETURNS SETOF queen.push_verdict
LANGUAGE sql AS $$
    SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{p}');
    SELECT * FROM queen.log_push(ARRAY[pg_temp.tenant()], '{q}', '{p}', ARRAY[length(hashes) / 16],
                                 ARRAY[hashes], ARRAY[blob], true);
$$;
-- Incompressible, so that what is stored has this length.
CREATE FUNCTION pg_temp.noise(seed text, bytes int) RETURNS bytea LANGUAGE sql AS $$
    SELECT substr(string_agg(queen.log_hash(seed || i), '' ORDER BY i), 1, bytes) FROM generate_series(0, bytes / 16) AS i;
$$;

-- Values of all sizes come back as they went in, in the row or out of line.
CREATE TEMP TABLE sent AS
SELECT n, bytes, pg_temp.noise('blob' || n, bytes) AS blob, pg_temp.noise('hash' || n, 16 * frames) AS hashes
  FROM (VALUES (1, 1, 1), (2, 126, 1), (3, 127, 1), (4, 1990, 125), (5, 2040, 130), (6, 9000, 500), (7, 1000000, 10000))
       AS v (n, bytes, frames);
SELECT n, v.status, v.base_offset FROM (SELECT * FROM sent ORDER BY n) AS s, pg_temp.push_blob(blob, hashes) AS v;
SELECT count(*), bool_and(g.blob = s.blob AND t.hashes = s.hashes) AS same,
       bool_and(g.end_offset - g.base_offset + 1 = length(s.hashes) / 16) AS ranges
  FROM (SELECT *, row_number() OVER (ORDER BY base_offset) AS n FROM queen.log_segments) AS g
  JOIN queen.log_txns AS t USING (partition_id, base_offset)
  JOIN sent AS s USING (n);
SELECT bytes = (SELECT sum(bytes) FROM sent) AS bytes, segments FROM queen.log_partitions;

-- Many entries of one partition: one after the other, each sees the hashes of those before it.
SELECT v.status, count(*), min(v.base_offset), max(v.base_offset), count(DISTINCT v.created_at)
  FROM queen.log_push(array_fill(pg_temp.tenant(), '{200}'), array_fill('q'::text, '{200}'), array_fill('p'::text, '{200}'),
                      array_fill(1, '{200}'),
                      ARRAY(SELECT queen.log_hash((i % 150)::text) FROM generate_series(1, 200) AS i),
                      array_fill('\x01'::bytea, '{200}'), false) AS v
 GROUP BY v.status ORDER BY v.status COLLATE "C";

-- Indexed columns go into the indexes, also when the row moves to another page.
SELECT count(*) FILTER (WHERE v.status = 'queued')
  FROM generate_series(1, 300) AS i, pg_temp.push('q', 'moved', 'm' || i) AS v;
UPDATE queen.log_partitions SET last_write_at = last_write_at - interval '1 minute';
SELECT status, base_offset FROM pg_temp.push('q', 'moved', 'm301');
SET enable_seqscan = off;
SELECT count(*) FROM queen.log_partitions WHERE id = pg_temp.partition_id('q', 'moved');
SELECT count(*) FROM queen.log_partitions AS p
 WHERE queue_id = (SELECT id FROM queen.queues WHERE name = 'q') AND last_write_at = last_created_at AND p.name = 'moved';
RESET enable_seqscan;

-- A read-only transaction.
\set VERBOSITY sqlstate
BEGIN READ ONLY;
SELECT * FROM queen.log_push(ARRAY[pg_temp.tenant()], '{q}', '{p}', '{1}', ARRAY[queen.log_hash('ro')], ARRAY['\x01'::bytea], false);
ROLLBACK;
\set VERBOSITY default

-- Constraints hold. Triggers would be passed over: there are none, or nothing is written.
ALTER TABLE queen.log_segments ADD CONSTRAINT short CHECK (length(blob) < 10) NOT VALID;
\set VERBOSITY terse
SELECT status FROM pg_temp.push_blob('\x0102030405060708090a', queen.log_hash('long'));
SELECT status FROM pg_temp.push_blob('\x01', queen.log_hash('short'));
ALTER TABLE queen.log_segments DROP CONSTRAINT short;
CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER mine BEFORE UPDATE ON queen.log_partitions FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing();
SELECT status FROM pg_temp.push_blob('\x01', queen.log_hash('trigger'));
ALTER TABLE queen.log_partitions DISABLE TRIGGER mine;
SELECT status FROM pg_temp.push_blob('\x01', queen.log_hash('disabled'));
DROP TRIGGER mine ON queen.log_partitions;
CREATE TRIGGER mine AFTER DELETE ON queen.log_txns EXECUTE FUNCTION pg_temp.nothing();
SELECT status FROM pg_temp.push_blob('\x01', queen.log_hash('trigger'));
DROP TRIGGER mine ON queen.log_txns;

-- Subscribers could not tell which row was updated.
SET client_min_messages = error;
CREATE PUBLICATION mine FOR TABLE queen.log_partitions;
RESET client_min_messages;
SELECT status FROM pg_temp.push_blob('\x01', queen.log_hash('published'));
ALTER TABLE queen.log_partitions REPLICA IDENTITY NOTHING;
SELECT status FROM pg_temp.push_blob('\x01', queen.log_hash('no identity'));
ALTER TABLE queen.log_partitions REPLICA IDENTITY DEFAULT;
DROP PUBLICATION mine;

-- The tables change while the session knows them: columns, indexes, files; also for a moment only.
CREATE FUNCTION pg_temp.next() RETURNS text LANGUAGE sql AS $$
    SELECT status || ' ' || (base_offset = lag) FROM (SELECT last_offset + 1 AS lag FROM queen.log_partitions WHERE id = pg_temp.partition_id('q', 'p')) AS p,
           pg_temp.push_blob('\x01', uuid_send(gen_random_uuid())) AS v;
$$;
SELECT pg_temp.next();
ALTER TABLE queen.log_segments ADD COLUMN extra int;
SELECT pg_temp.next();
ALTER TABLE queen.log_segments DROP COLUMN extra, ADD COLUMN other int DEFAULT 5;
SELECT pg_temp.next();
BEGIN;
ALTER TABLE queen.log_txns ADD COLUMN gone text;
SELECT pg_temp.next();
ROLLBACK;
SELECT pg_temp.next();
ALTER TABLE queen.log_segments DROP COLUMN other;
CREATE INDEX log_txns_hashes_idx ON queen.log_txns (created_at, substr(hashes, 1, 16)) WHERE base_offset > 0;
SELECT pg_temp.next();
DROP INDEX queen.log_txns_hashes_idx;
REINDEX TABLE CONCURRENTLY queen.log_partitions;
REINDEX TABLE CONCURRENTLY queen.log_txns;
SELECT pg_temp.next();
VACUUM FULL queen.log_partitions;
CLUSTER queen.log_txns USING log_txns_pkey;
SELECT pg_temp.next();
ALTER TABLE queen.log_txns RENAME COLUMN hashes TO digests;
SELECT pg_temp.next();
ALTER TABLE queen.log_txns RENAME COLUMN digests TO hashes;
ALTER TABLE queen.log_txns RENAME TO log_transactions;
SELECT pg_temp.next();
ALTER TABLE queen.log_transactions RENAME TO log_txns;
ALTER INDEX queen.log_partitions_queue_id_name_key RENAME TO mine;
SELECT pg_temp.next();
ALTER INDEX queen.mine RENAME TO log_partitions_queue_id_name_key;
SELECT pg_temp.next();
SELECT count(*) = max(p.segments) AS all_there FROM queen.log_segments AS s JOIN queen.log_partitions AS p ON p.id = s.partition_id
 WHERE p.id = pg_temp.partition_id('q', 'p');

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;

-- The extension goes and comes under a session that has used it.
CREATE DATABASE regress_queen_again TEMPLATE template0 ENCODING 'UTF8';
\c regress_queen_again
CREATE FUNCTION push(id text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM queen.log_provision('{00000000-0000-0000-0000-000000000001}', '{q}', '{p}');
    RETURN (SELECT status || ' ' || coalesce(base_offset, -1)
              FROM queen.log_push('{00000000-0000-0000-0000-000000000001}', '{q}', '{p}', '{1}',
                                  ARRAY[queen.log_hash(id)], '{"\\x01"}', true));
END
$$;
SET client_min_messages = warning;
CREATE EXTENSION queen;
SELECT push('a'), push('b'), push('a');
DROP EXTENSION queen;
CREATE EXTENSION queen;
SELECT push('b'), push('a'), push('a');
BEGIN;
DROP EXTENSION queen;
CREATE EXTENSION queen;
SELECT push('c'), push('a');
ROLLBACK;
SELECT push('c'), push('a');
BEGIN;
DROP EXTENSION queen;
ROLLBACK;
SELECT push('d');
\c regression
DROP DATABASE regress_queen_again;
