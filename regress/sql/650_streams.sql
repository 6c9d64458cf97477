-- Streams: query records, state, and the cycle that does all or nothing.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
\set SHOW_CONTEXT never
CREATE FUNCTION pg_temp.register(name text, hash text, reset boolean DEFAULT false)
RETURNS TABLE (fresh boolean, reset boolean, same boolean)
LANGUAGE sql AS $$
    SELECT r.fresh, r.was_reset, r.query_id = (SELECT q.id FROM queen.stream_queries AS q WHERE q.name = register.name)
      FROM queen.log_stream_query(pg_temp.tenant(), name, 'source', 'sink', hash, reset) AS r;
$$;
CREATE FUNCTION pg_temp.query_id(name text) RETURNS uuid
LANGUAGE sql AS $$ SELECT q.id FROM queen.stream_queries AS q WHERE q.name = query_id.name $$;
-- Operations are "key=value"; without a value the key is deleted. Windows end at the number of the value.
CREATE FUNCTION pg_temp.cycle(operations text[] DEFAULT '{}', pushes text[] DEFAULT '{}', worker int DEFAULT NULL,
                              acks text DEFAULT NULL, status text DEFAULT NULL, whole boolean DEFAULT true,
                              name text DEFAULT 'q', part text DEFAULT 'p')
RETURNS TABLE (entry int, verdict text, error text, base_offset bigint, duplicates int[], queue text, partition text,
               acked bigint, released boolean)
LANGUAGE sql AS $$
    SELECT c.*
      FROM (SELECT coalesce(array_agg(split_part(o, '=', 1) ORDER BY n), '{}') AS keys,
                   coalesce(array_agg(nullif(split_part(o, '=', 2), '') ORDER BY n), '{}') AS vals,
                   coalesce(array_agg(nullif(split_part(o, '=', 2), '')::float8 ORDER BY n), '{}') AS ends
              FROM unnest(operations) WITH ORDINALITY AS u (o, n)) AS o
     CROSS JOIN (SELECT CASE WHEN cardinality(pushes) > 0 THEN 1 ELSE 0 END AS n) AS k
     CROSS JOIN queen.log_stream_cycle(
           pg_temp.tenant(), pg_temp.query_id(name), pg_temp.partition_id('source', part), o.keys, o.vals, o.ends,
           array_fill('sink'::text, ARRAY[k.n]), array_fill('s'::text, ARRAY[k.n]), array_fill(cardinality(pushes), ARRAY[k.n]),
           array_fill(pg_temp.hashes(pushes), ARRAY[k.n]), array_fill(pg_temp.segment(pushes), ARRAY[k.n]),
           'streams.q', pg_temp.worker(worker), acks, status, whole) AS c;
$$;
CREATE FUNCTION pg_temp.state(keys text[] DEFAULT '{}', prefix text DEFAULT NULL, ripe float8 DEFAULT NULL)
RETURNS TABLE (state text)
LANGUAGE sql AS $$
    SELECT string_agg(s.key || '=' || s.value, ' ')
      FROM queen.log_stream_state(pg_temp.tenant(), pg_temp.query_id('q'), pg_temp.partition_id('source', 'p'), keys, prefix, ripe) AS s;
$$;

-- A query is known by its name; another configuration needs a reset.
SELECT * FROM pg_temp.register('q', 'h1');
SELECT * FROM pg_temp.register('q', 'h1');
SELECT * FROM pg_temp.register('q', 'h1', true);
SELECT * FROM pg_temp.register('q', 'h2');
SELECT config_hash, sink_queue FROM queen.stream_queries;

-- A cycle with everything: state, results and the whole batch.
SELECT status, base_offset FROM pg_temp.push('source', 'p', 'a', 'b', 'c');
SELECT status, base_offset FROM pg_temp.push('source', 'p', 'd', 'e');
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{sink}', '{s}');
SELECT * FROM pg_temp.pop('source', grp => 'streams.q', worker => 1, batch => 3, mode => 'all');
SELECT * FROM pg_temp.cycle('{w1=1,w2=2,w3=3}', '{r1,r2}', 1, 'c', 'completed');
SELECT * FROM pg_temp.state();
SELECT * FROM pg_temp.cursors('source');
SELECT ids FROM pg_temp.pop('sink', auto => true);

-- State is found by key, by prefix, and by the end of its window.
SELECT * FROM pg_temp.state('{w3,w1,none}');
SELECT * FROM pg_temp.state(prefix => 'w');
SELECT * FROM pg_temp.state(prefix => 'x');
SELECT * FROM pg_temp.state(ripe => 2);
SELECT * FROM pg_temp.state('{w2}', 'w', 1);

-- Of several operations on a key the last one decides.
SELECT verdict FROM pg_temp.cycle('{w1=5,w1=6,w2=9,w2=,w4=,w5=,w5=7}');
SELECT * FROM pg_temp.state();

-- A lease that is over, or a stranger's, fences: nothing of the cycle stays.
SELECT * FROM pg_temp.cycle('{w1=0}', '{r3}', 1, 'c', 'completed');
SELECT ids FROM pg_temp.pop('source', grp => 'streams.q', worker => 2);
SELECT verdict, error FROM pg_temp.cycle('{w1=0}', '{r3}', 3, 'e', 'completed');
SELECT pg_temp.expire('source');
SELECT verdict, error FROM pg_temp.cycle('{w1=0}', '{r3}', 2, 'e', 'completed');
SELECT * FROM pg_temp.state();
SELECT status, ids FROM pg_temp.pop('sink', auto => true);

-- So does an id that the batch does not hold.
SELECT ids FROM pg_temp.pop('source', grp => 'streams.q', worker => 4);
SELECT verdict, error FROM pg_temp.cycle('{w1=0}', '{r3}', 4, 'x', 'completed');

-- A part of the batch: the lease stays. Repeated it is refused, because it would count twice.
SELECT verdict, acked, released FROM pg_temp.cycle('{w6=1}', '{}', 4, 'd', 'completed', false);
SELECT verdict, error FROM pg_temp.cycle('{w6=2}', '{}', 4, 'd', 'completed', false);
SELECT * FROM pg_temp.cursors('source');
SELECT * FROM pg_temp.state('{w6}');

-- The whole batch, whichever of its messages is named.
SELECT verdict, acked, released FROM pg_temp.cycle('{}', '{}', 4, 'e', 'completed');
SELECT base_offset FROM pg_temp.push('source', 'p', 'f', 'g', 'h');
SELECT base_offset FROM pg_temp.push('source', 'p', 'i');
SELECT ids FROM pg_temp.pop('source', grp => 'streams.q', worker => 5, batch => 3);
SELECT verdict, acked, released FROM pg_temp.cycle('{}', '{}', 5, 'f', 'completed');
SELECT * FROM pg_temp.cursors('source');

-- A negative status gives the batch back and charges nothing.
SELECT ids FROM pg_temp.pop('source', grp => 'streams.q', worker => 6);
SELECT verdict, acked, released FROM pg_temp.cycle('{}', '{}', 6, 'i', 'retry');
SELECT * FROM pg_temp.cursors('source');

-- Pushes that are not possible: nothing is done, and each one says why.
SELECT entry, verdict, duplicates FROM pg_temp.cycle('{w7=1}', '{r4,r1}');
-- A queue that is not there is created.
SELECT verdict FROM queen.log_stream_cycle(pg_temp.tenant(), pg_temp.query_id('q'), pg_temp.partition_id('source', 'p'),
    '{w7}', '{1}', '{1}', '{new}', '{s}', '{1}', ARRAY[pg_temp.hashes('{a}')], ARRAY[pg_temp.segment('{a}'::text[])],
    'streams.q', NULL, NULL, NULL, true);
SELECT * FROM pg_temp.state('{w7}');

-- Queries and partitions of others are unknown.
SELECT entry, verdict, error FROM pg_temp.cycle(name => 'none');
SELECT entry, verdict, error FROM pg_temp.cycle(part => 'none');
SELECT * FROM queen.log_stream_state(gen_random_uuid(), pg_temp.query_id('q'), pg_temp.partition_id('source', 'p'), '{}', NULL, NULL);
SELECT verdict, error FROM queen.log_stream_cycle(gen_random_uuid(), pg_temp.query_id('q'), pg_temp.partition_id('source', 'p'),
    '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, NULL, NULL, NULL, true);

-- A reset wipes the state, and leaves the cursor where it is.
SELECT * FROM pg_temp.register('q', 'h2', true);
SELECT * FROM pg_temp.state();
SELECT committed FROM pg_temp.cursors('source');

-- Keys longer than an index entry, and values that jsonb refuses.
SELECT verdict FROM queen.log_stream_cycle(pg_temp.tenant(), pg_temp.query_id('q'), pg_temp.partition_id('source', 'p'),
    ARRAY[repeat('k', 10000)], ARRAY['{"a":"\u0000"}'], '{NULL}', '{}', '{}', '{}', '{}', '{}', NULL, NULL, NULL, NULL, true);
SELECT length(key), value, window_end FROM queen.stream_state;

-- State goes with its partition.
SELECT queen.log_delete_queue(pg_temp.tenant(), 'source');
SELECT sum(queen.log_drain_step(100)) > 0 AS removed FROM generate_series(1, 10);
SELECT count(*) FROM queen.stream_state;
SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns, queen.stream_queries CASCADE;

-- What is missing is bad input.
\set VERBOSITY sqlstate
SELECT * FROM pg_temp.register(NULL, 'h');
SELECT * FROM pg_temp.register('q', NULL);
