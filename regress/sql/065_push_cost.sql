-- What a push reads: V-95, the same few rows by primary key however many partitions and segments
-- there are, whatever the planner knows about the tables.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.fill(first int, last int) RETURNS bigint LANGUAGE sql AS $$
    SELECT queen.log_provision(array_agg(pg_temp.tenant()), array_agg('cost'::text), array_agg('p' || i))
      FROM generate_series(first, last) AS i;
    SELECT count(*)
      FROM (SELECT array_agg(i) AS n FROM generate_series(first, last) AS i) AS a,
           queen.log_push(array_fill(pg_temp.tenant(), ARRAY[cardinality(n)]),
                          array_fill('cost'::text, ARRAY[cardinality(n)]),
                          ARRAY(SELECT 'p' || i FROM unnest(n) AS i),
                          array_fill(1, ARRAY[cardinality(n)]),
                          ARRAY(SELECT queen.log_hash(i::text) FROM unnest(n) AS i),
                          array_fill('\x01'::bytea, ARRAY[cardinality(n)]), false) AS v
     WHERE v.status = 'queued';
$$;
-- Two partitions, one of them with a duplicate: every statement of the call has something to do.
CREATE FUNCTION pg_temp.push_two(id text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(status, ' ' ORDER BY entry)
      FROM queen.log_push(array_fill(pg_temp.tenant(), ARRAY[2]), '{cost,cost}', '{p1,p2}', '{1,1}',
                          ARRAY[queen.log_hash(id), queen.log_hash('2')],
                          ARRAY[pg_temp.segment(ARRAY[id]), pg_temp.segment(ARRAY['2'])], false);
$$;
CREATE VIEW pg_temp.reads AS
    SELECT relname, seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables
     WHERE schemaname = 'queen' AND relname IN ('queues', 'log_partitions', 'log_segments', 'log_txns')
     ORDER BY relname COLLATE "C";

-- Two thousand new queues, of which the planner knows nothing: each is looked up by itself, once for
-- its lock, once by the foreign key.
BEGIN;
SELECT count(queen.log_provision(array_fill(pg_temp.tenant(), ARRAY[100]), q, array_fill('p'::text, ARRAY[100])))
  FROM (SELECT array_agg('q' || i) AS q FROM generate_series(1, 2000) AS i GROUP BY i % 20) AS calls;
SELECT relname, seq_scan, idx_tup_fetch <= 4100 AS few FROM pg_temp.reads WHERE relname = 'queues';
ROLLBACK;

SELECT pg_temp.fill(1, 10);
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT pg_temp.push_two('few');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- Ten partitions known to the planner, three thousand there.
ANALYZE queen.queues, queen.log_partitions, queen.log_segments, queen.log_txns;
SELECT pg_temp.fill(11, 3000);
DISCARD PLANS;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT pg_temp.push_two('unknown');
SELECT * FROM pg_temp.reads;
ROLLBACK;

-- All of them known.
ANALYZE queen.queues, queen.log_partitions, queen.log_segments, queen.log_txns;
DISCARD PLANS;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT pg_temp.push_two('known');
SELECT * FROM pg_temp.reads;
ROLLBACK;

SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns CASCADE;
