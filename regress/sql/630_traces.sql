-- Traces: recorded and found, by message and by name, per tenant, within limits.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all
\set SHOW_CONTEXT never
\set VERBOSITY terse
\set p '00000000-0000-0000-0000-0000000000aa'
SELECT (pg_temp.push('traced', 'p', 'm')).status;
CREATE FUNCTION pg_temp.trace(part uuid, id text, names text[] DEFAULT '{}', data jsonb DEFAULT '{}', grp text DEFAULT 'g',
                              type text DEFAULT 'info', tenant uuid DEFAULT pg_temp.tenant()) RETURNS boolean
LANGUAGE sql AS $$ SELECT queen.log_trace(tenant, part, id, grp, type, names, data::text, 'web') IS NOT NULL; $$;
CREATE FUNCTION pg_temp.shown(v jsonb) RETURNS TABLE (event_type text, data jsonb, grp text, worker text, names jsonb,
    id boolean, created boolean, message text, place text)
LANGUAGE sql AS $$
    SELECT t ->> 'event_type', t -> 'data', t ->> 'consumer_group', t ->> 'worker_id', t -> 'trace_names',
           t ->> 'id' ~ '^[0-9a-f-]{36}$', t ->> 'created_at' ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$',
           t ->> 'transaction_id', concat_ws('/', t ->> 'queue_name', t ->> 'partition_name')
      FROM jsonb_array_elements(v -> 'traces') AS t;
$$;

SELECT queen.log_traces(pg_temp.tenant(), :'p', 'm'), queen.log_traces_by_name(pg_temp.tenant(), 'n', 10, 0),
       queen.log_trace_names(pg_temp.tenant(), 10, 0);
SELECT pg_temp.trace(pg_temp.partition_id('traced', 'p'), 'm', '{order,shop,order}', '{"step": 1}');
SELECT pg_temp.trace(pg_temp.partition_id('traced', 'p'), 'm', '{order}', '{"step": 2}', type => 'error');
SELECT pg_temp.trace(pg_temp.partition_id('traced', 'p'), 'm', '{}', '[1, "x", null]');
SELECT pg_temp.trace(:'p', 'm', '{order}', '{"no": "such message"}', '__QUEUE_MODE__');
SELECT * FROM pg_temp.shown(queen.log_traces(pg_temp.tenant(), pg_temp.partition_id('traced', 'p'), 'm'));
SELECT * FROM pg_temp.shown(queen.log_traces_by_name(pg_temp.tenant(), 'order', 10, 0));
SELECT j -> 'total', j -> 'pagination', jsonb_array_length(j -> 'traces') FROM queen.log_traces_by_name(pg_temp.tenant(), 'order', 2, 2) AS j;
SELECT j -> 'total', j -> 'pagination', t - 'last_seen' FROM queen.log_trace_names(pg_temp.tenant(), 10, 0) AS j, jsonb_array_elements(j -> 'trace_names') AS t;
SELECT t ->> 'trace_name' FROM queen.log_trace_names(pg_temp.tenant(), 1, 1) AS j, jsonb_array_elements(j -> 'trace_names') AS t;

-- V-96: traces are the tenant's own, also on a partition id of another; and that one's names stay hidden.
\set other '00000000-0000-0000-0000-000000000002'
SELECT pg_temp.trace(pg_temp.partition_id('traced', 'p'), 'm', '{order}', '{"of": "the other"}', tenant => :'other');
SELECT jsonb_array_length(queen.log_traces(pg_temp.tenant(), pg_temp.partition_id('traced', 'p'), 'm') -> 'traces');
SELECT message, place, data FROM pg_temp.shown(queen.log_traces_by_name(:'other', 'order', 10, 0));
SELECT queen.log_trace_names(:'other', 10, 0) -> 'total', queen.log_traces_by_name(:'other', 'shop', 10, 0) -> 'total';

-- They survive their queue.
SELECT queen.log_delete_queue(pg_temp.tenant(), 'traced');
SELECT message, place, data FROM pg_temp.shown(queen.log_traces_by_name(pg_temp.tenant(), 'shop', 10, 0));

-- Limits: names and ids of 255 characters, 100 names, 1,000 events shown per message.
SELECT string_agg(chr(65536 + (i * 7919) % 60000), '') AS long FROM generate_series(1, 255) AS i \gset
SELECT pg_temp.trace(:'p', :'long', ARRAY[:'long'], grp => :'long', type => :'long');
SELECT jsonb_array_length(queen.log_traces(pg_temp.tenant(), :'p', :'long') -> 'traces');
SELECT pg_temp.trace(:'p', 'many', array_agg('n' || i)) FROM generate_series(1, 100) AS i;
SELECT count(pg_temp.trace(:'p', 'much')) FROM generate_series(1, 1001);
SELECT jsonb_array_length(queen.log_traces(pg_temp.tenant(), :'p', 'much') -> 'traces');
SELECT pg_temp.trace(:'p', 'many', array_agg('n' || i)) FROM generate_series(1, 101) AS i;
SELECT pg_temp.trace(:'p', :'long' || 'x');
SELECT pg_temp.trace(:'p', '');
SELECT pg_temp.trace(:'p', E'a\nb');
SELECT pg_temp.trace(:'p', 'a', grp => '');
SELECT pg_temp.trace(:'p', 'a', type => '');
SELECT pg_temp.trace(:'p', 'a', ARRAY['']);
SELECT pg_temp.trace(:'p', 'a', ARRAY[NULL]);
SELECT pg_temp.trace(:'p', 'a', NULL);
SELECT pg_temp.trace(NULL, 'a');
SELECT pg_temp.trace(:'p', 'a', '{}', NULL);
SELECT queen.log_trace(pg_temp.tenant(), :'p', 'a', 'g', 'info', '{}', '{"a": "\u0000"}', 'web');
SELECT queen.log_trace(pg_temp.tenant(), :'p', 'a', 'g', 'info', '{}', '{"a": 1e999999}', 'web');
SELECT queen.log_trace(pg_temp.tenant(), :'p', 'a', 'g', 'info', '{}', '{', 'web');
TRUNCATE queen.message_traces CASCADE;
