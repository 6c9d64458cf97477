-- Hostile names through push, pop, ack, dead letter and deletion by SQL: what comes back is what
-- went in, byte for byte.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set api :srcdir '/lib/api.sql'
\set ECHO none
\i :segments
\i :api
\set ECHO all
CREATE TEMP TABLE names (n serial, what text, name text);
INSERT INTO names (what, name) VALUES
    ('one character', 'x'), ('the limit', repeat('n', 255)), ('the limit, in 4-byte characters', repeat(U&'\+01F600', 255)),
    ('quotes', $$a'b"c''d$$), ('semicolons', '; DROP TABLE queen.queues; --'), ('dollars', '$$ $1 $x$'), ('percent', '%s%n%d%I%L'),
    ('backslash', 'a\b\\c\n'), ('backtick', '`id`'), ('right-to-left', U&'\202Eabc\202C'), ('emoji', U&'\+01F9EA'), ('NFC', U&'gr\00FC\00DF'),
    ('NFD', U&'gru\0308\00DF'), ('spaces around', '  x  '), ('a space', ' '), ('dots', '..'), ('slash', 'a/b'), ('keyword', 'select'),
    ('our own table', 'queen.log_partitions'), ('braces', '{a,b}'), ('NULL', 'NULL'), ('the group of no group', '__QUEUE_MODE_'),
    ('no-break space', U&'\00A0'), ('noncharacter', U&'\FFFF'), ('empty array', '{}'), ('comment', '/* x */ -- y');

-- Queue, partition, group and transaction id all have the name; returns the step that failed.
CREATE FUNCTION pg_temp.walk(name text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    m      queen.message;
    letter queen.dead_letter;
BEGIN
    IF (queen.push(name, to_jsonb(name), name, name)).status <> 'queued'
       OR (queen.push(name, to_jsonb(name), name, name)).status <> 'duplicate'
       OR (queen.push(name, '2', name, '~' || substr(name, 2))).status <> 'queued' THEN
        RETURN 'push';
    END IF;
    SELECT * INTO m FROM queen.pop(name, name, name, subscription_mode => 'all');
    IF (m.transaction_id, m.partition, m.consumer_group, m.payload) IS DISTINCT FROM (name, name, name, to_jsonb(name)) THEN
        RETURN 'pop';
    END IF;
    IF NOT queen.nack(m.partition_id, name, m.lease_id, name, name, 'dlq') THEN
        RETURN 'nack';
    END IF;
    SELECT * INTO letter FROM queen.dead_letters(name, name);
    IF (letter.transaction_id, letter.partition, letter.consumer_group, letter.error, letter.payload_text)
       IS DISTINCT FROM (name, name, name, name, to_jsonb(name)::text) THEN
        RETURN 'dead letter';
    END IF;
    SELECT * INTO m FROM queen.pop(name, name);
    IF NOT queen.ack(m.partition_id, '~' || substr(name, 2), m.lease_id, name) THEN
        RETURN 'ack';
    END IF;
    IF (SELECT (l.consumer_group, l.lag) IS DISTINCT FROM (name, 0::bigint) FROM queen.lag(name, name) AS l) THEN
        RETURN 'lag';
    END IF;
    IF queen.configure(name, '{"leaseTime":9}') ->> 'leaseTime' <> '9' THEN
        RETURN 'configure';
    END IF;
    IF NOT queen.delete_queue(name) OR queen.delete_queue(name) THEN
        RETURN 'delete';
    END IF;
    RETURN 'ok';
END
$$;
SELECT what, pg_temp.walk(name) FROM names ORDER BY n;

-- Two normal forms are two names.
SELECT transaction_id, status FROM queen.push_many('forms', '{1,2}', ARRAY[U&'gr\00FC\00DF', U&'gru\0308\00DF'], '{t,t}');
SELECT count(DISTINCT partition) FROM queen.pop('forms', batch => 5, partitions => 0);

-- Those that are refused, wherever they stand. A queue's name may be empty.
CREATE TEMP TABLE bad (n serial, what text, name text);
INSERT INTO bad (what, name) VALUES ('empty', ''), ('over the limit', repeat('n', 256)), ('newline', E'a\nb'), ('control', E'\x01'), ('delete', E'\x7f'), ('64 KB', repeat('n', 65536));
SELECT what,
       left(pg_temp.failure(format($$SELECT queen.push(%L, '1')$$, name)), 8) AS queue,
       left(pg_temp.failure(format($$SELECT queen.push('bad', '1', %L)$$, name)), 5) AS partition,
       left(pg_temp.failure(format($$SELECT queen.push('bad', '1', transaction_id => %L)$$, name)), 8) AS transaction_id,
       left(pg_temp.failure(format($$SELECT queen.pop(%L)$$, name)), 8) AS pop_queue,
       left(pg_temp.failure(format($$SELECT queen.pop('forms', partition => %L)$$, name)), 5) AS pop_partition,
       left(pg_temp.failure(format($$SELECT queen.pop('forms', %L)$$, name)), 5) AS pop_group,
       left(pg_temp.failure(format($$SELECT queen.ack(gen_random_uuid(), 't', NULL, %L)$$, name)), 5) AS ack_group,
       left(pg_temp.failure(format($$SELECT queen.ack(gen_random_uuid(), %L, NULL)$$, name)), 5) AS ack_id,
       left(pg_temp.failure(format($$SELECT queen.configure(%L)$$, name)), 8) AS configure
  FROM bad ORDER BY n;

TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;
