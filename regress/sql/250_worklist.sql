-- Work lists: a pop of any partition finds what commits, rollbacks and acknowledgements left. No
-- walk helps here: the list is complete after the first pop, so what it lost would not be found.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
SHOW queen.use_worklists;
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{p}');
SELECT status FROM pg_temp.pop('q');
SELECT status FROM pg_temp.pop('q', grp => 'g');

-- What has been ready longest comes first; what is left of a partition comes after the others.
SELECT base_offset FROM pg_temp.push('q', 'c', 'c1', 'c2');
SELECT base_offset FROM pg_temp.push('q', 'a', 'a1', 'a2');
SELECT base_offset FROM pg_temp.push('q', 'b', 'b1', 'b2');
SELECT $$SELECT partition, ids FROM pg_temp.pop('q', batch => 1, auto => true)$$ FROM generate_series(1, 7) \gexec
-- Another group has its own list.
SELECT $$SELECT partition, ids FROM pg_temp.pop('q', grp => 'g', auto => true)$$ FROM generate_series(1, 4) \gexec

-- A push that is rolled back, wholly or to a savepoint, enters nothing that could be delivered.
BEGIN;
SELECT base_offset FROM pg_temp.push('q', 'a', 'undone');
ROLLBACK;
BEGIN;
SELECT base_offset FROM pg_temp.push('q', 'c', 'kept');
SAVEPOINT s;
SELECT base_offset FROM pg_temp.push('q', 'a', 'undone');
ROLLBACK TO s;
SAVEPOINT t;
SELECT base_offset FROM pg_temp.push('q', 'c', 'kept too');
RELEASE t;
COMMIT;
SELECT $$SELECT partition, ids FROM pg_temp.pop('q', auto => true)$$ FROM generate_series(1, 3) \gexec
SELECT $$SELECT partition, ids FROM pg_temp.pop('q', grp => 'g', auto => true)$$ FROM generate_series(1, 3) \gexec

-- What a transaction pushes it can pop, and then nobody else finds it.
BEGIN;
SELECT base_offset FROM pg_temp.push('q', 'a', 'own');
SELECT ids FROM pg_temp.pop('q', auto => true);
SELECT ids FROM pg_temp.pop('q', auto => true);
COMMIT;
SELECT ids FROM pg_temp.pop('q', auto => true);
SELECT ids FROM pg_temp.pop('q', grp => 'g', auto => true);

-- Nor does a later pop look in vain: what the group has seen in the transaction is no news for it.
-- Two pops of a transaction look at two partitions, each once.
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT base_offset FROM pg_temp.push('q', 'a', 'own 1');
SELECT base_offset FROM pg_temp.push('q', 'b', 'own 2');
SELECT status FROM pg_temp.pop('q', worker => 20, lease => 3600) UNION ALL SELECT status FROM pg_temp.pop('q', auto => true);
SELECT seq_scan, idx_scan FROM pg_stat_xact_user_tables WHERE relname = 'log_consumers';
COMMIT;
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT status FROM pg_temp.pop('q');
SELECT seq_scan, idx_scan FROM pg_stat_xact_user_tables WHERE relname = 'log_consumers';
COMMIT;
-- What is pushed after the pop is news, and what the pop left behind.
BEGIN;
SELECT base_offset FROM pg_temp.push('q', 'd', 'own 3', 'own 4');
SELECT ids FROM pg_temp.pop('q', batch => 1, auto => true);
COMMIT;
BEGIN;
SELECT ids FROM pg_temp.pop('q', auto => true);
SELECT base_offset FROM pg_temp.push('q', 'd', 'own 5');
COMMIT;
SELECT ids FROM pg_temp.pop('q', auto => true);
SELECT count(*) FROM pg_temp.pop('q', grp => 'g', auto => true, partitions => 5) WHERE status = 'segment';
SELECT count(released) FROM queen.log_consumers AS c,
       queen.log_release(ARRAY[pg_temp.tenant()], ARRAY[c.partition_id], ARRAY[c.consumer_group], ARRAY[c.worker_id])
 WHERE c.worker_id = pg_temp.worker(20);
SELECT count(*) FROM pg_temp.pop('q', auto => true) WHERE status = 'segment';

-- A pop that is rolled back, wholly, to a savepoint or by an error, gives back what it took.
SELECT base_offset FROM pg_temp.push('q', 'a', 'again');
BEGIN;
SELECT ids FROM pg_temp.pop('q');
ROLLBACK;
BEGIN;
SELECT ids FROM pg_temp.pop('q', auto => true);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT ids FROM pg_temp.pop('q');
SAVEPOINT t;
SELECT ids FROM pg_temp.pop('q');
RELEASE t;
ROLLBACK TO s;
SELECT ids FROM pg_temp.pop('q', auto => true);
ROLLBACK;
DO $$
BEGIN
    PERFORM FROM pg_temp.pop('q');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    NULL;
END
$$;
SELECT ids FROM pg_temp.pop('q');

-- Every end of a lease makes the rest of the partition ready: a retry, a release, a complete ack, a
-- dead letter; and the lease's own end, with nobody to notice it.
SELECT base_offset FROM pg_temp.push('q', 'a', 'more');
SELECT success FROM pg_temp.ack('q', 'a', 1, '{again}', '{retry}');
SELECT ids FROM pg_temp.pop('q', batch => 1, worker => 2);
SELECT released FROM queen.log_release(ARRAY[pg_temp.tenant()], ARRAY[pg_temp.partition_id('q', 'a')], '{__QUEUE_MODE__}', ARRAY[pg_temp.worker(2)]);
SELECT ids FROM pg_temp.pop('q', batch => 1, worker => 3);
SELECT success FROM pg_temp.ack('q', 'a', 3, '{again}');
SELECT ids FROM pg_temp.pop('q', worker => 4);
SELECT base_offset FROM pg_temp.push('q', 'a', 'most');
SELECT success, dlq FROM pg_temp.ack('q', 'a', 4, '{more}', '{dlq}');
SELECT ids FROM pg_temp.pop('q', worker => 5, lease => 1);
SELECT pg_sleep(1.01);
SELECT ids, attempt FROM pg_temp.pop('q', worker => 6);
-- In one transaction, too; and nothing is left when nothing is behind.
BEGIN;
SELECT success FROM pg_temp.ack('q', 'a', 6, '{most}', '{retry}');
SELECT ids FROM pg_temp.pop('q', worker => 7);
SELECT success FROM pg_temp.ack('q', 'a', 7, '{most}');
SELECT ids FROM pg_temp.pop('q', worker => 8);
COMMIT;
SELECT status, retry_at FROM pg_temp.pop_rows('q', worker => 8);
-- Without a list the same is found; what a list must hear of can be told.
SELECT base_offset FROM pg_temp.push('q', 'b', 'x', 'y');
SET queen.use_worklists = off;
SELECT ids FROM pg_temp.pop('q', batch => 1, worker => 9, lease => 1000);
RESET queen.use_worklists;
SELECT status FROM pg_temp.pop('q');
UPDATE queen.log_consumers SET lease_expires_at = clock_timestamp() - interval '1 second' WHERE worker_id = pg_temp.worker(9);
SELECT queen.stat_doubt(id) FROM queen.queues WHERE name = 'q';
SELECT ids FROM pg_temp.pop('q', auto => true);

-- Pushes, pops and acknowledgements at random, some rolled back; two groups drain all of it by their
-- lists, each message once.
CREATE TEMP TABLE drained (grp text, part text, first bigint, last bigint);
DO $$
DECLARE
    part  text;
    batch record;
    kind  int;
BEGIN
    PERFORM setseed(0.25);
    FOR i IN 1..600 LOOP
        part := 'p' || (random() * 20)::int;
        kind := (random() * 9)::int;
        BEGIN
            IF kind < 4 THEN
                PERFORM pg_temp.push('random', part, 'm' || i, 'n' || i);
            ELSIF kind < 7 THEN
                INSERT INTO drained
                SELECT 'auto', p.partition, p.first, p.last
                  FROM pg_temp.pop('random', grp => 'auto', batch => 3, partitions => 2, auto => true) AS p
                 WHERE p.status = 'segment';
            ELSE
                FOR batch IN SELECT p.partition, min(p.first) AS first, max(p.last) AS last, array_agg(u.id) AS ids
                               FROM pg_temp.pop('random', grp => 'acked', worker => i, batch => 3, partitions => 2) AS p,
                                    unnest(string_to_array(p.ids, ' ')) AS u (id)
                              WHERE p.status = 'segment' GROUP BY p.partition LOOP
                    PERFORM pg_temp.ack('random', batch.partition, i, batch.ids,
                                        array_fill(CASE WHEN i % 3 = 0 THEN 'retry' ELSE 'completed' END, ARRAY[cardinality(batch.ids)]),
                                        grp => 'acked');
                    INSERT INTO drained SELECT 'acked', batch.partition, batch.first, batch.last WHERE i % 3 <> 0;
                END LOOP;
            END IF;
            IF i % 7 = 0 THEN
                RAISE division_by_zero;
            END IF;
        EXCEPTION WHEN division_by_zero THEN
            NULL;
        END;
        COMMIT;
    END LOOP;
    FOR i IN 1..400 LOOP
        INSERT INTO drained
        SELECT g, p.partition, p.first, p.last
          FROM unnest('{auto,acked}'::text[]) AS g, pg_temp.pop('random', grp => g, auto => true) AS p
         WHERE p.status = 'segment';
        COMMIT;
    END LOOP;
END
$$;
SELECT d.grp, count(*) = max(s.messages) AS all_of_it, count(*) = count(DISTINCT (d.part, o)) AS once
  FROM drained AS d, generate_series(d.first, d.last) AS o,
       (SELECT sum(p.last_offset + 1) AS messages FROM queen.log_partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = 'random') AS s
 GROUP BY d.grp ORDER BY d.grp;

-- With 10,000 partitions a pop reads what it reads with 10, and so does one that finds nothing.
CREATE FUNCTION pg_temp.buffers(queue text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM pg_temp.pop_rows(%L, auto => true)', queue) INTO plan;
    RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::int + (plan #>> '{0,Plan,Shared Read Blocks}')::int;
END
$$;
SELECT queen.log_provision(array_fill(pg_temp.tenant(), ARRAY[width]), array_fill(queue, ARRAY[width]), ARRAY(SELECT 'p' || i FROM generate_series(1, width) AS i))
  FROM (VALUES ('narrow', 10), ('wide', 10000)) AS w (queue, width);
-- A first contact reads a bounded number of rows and sets no cursor; who goes on comes to the end.
CREATE FUNCTION pg_temp.contact(queue text, grp text, mode text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM pg_temp.pop_rows(%L, grp => %L, mode => %L, auto => true)', queue, grp, mode)
       INTO plan;
    RETURN (plan #>> '{0,Plan,Shared Hit Blocks}')::int + (plan #>> '{0,Plan,Shared Read Blocks}')::int;
END
$$;
SELECT mode, pg_temp.contact('narrow', 'first ' || mode, mode) < 3000 AS narrow, pg_temp.contact('wide', 'first ' || mode, mode) < 15000 AS wide
  FROM unnest('{all,new}'::text[]) AS mode;
SELECT count(*) FROM queen.log_consumers WHERE consumer_group LIKE 'first %';
CREATE FUNCTION pg_temp.pops_to_the_end(queue text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    pops int := 0;
BEGIN
    LOOP
        pops := pops + 1;
        EXIT WHEN (SELECT bool_and(retry_at IS DISTINCT FROM '-infinity') FROM pg_temp.pop_rows(queue, auto => true));
    END LOOP;
    RETURN pops;
END
$$;
SELECT q, pg_temp.pops_to_the_end(q) FROM unnest('{narrow,wide}'::text[]) AS q;
SELECT count(*) FROM unnest('{narrow,wide}'::text[]) AS q, generate_series(1, 8) AS i, pg_temp.push(q, 'p' || i, 'a');
-- What the first calls of a session read of the catalogs does not count.
SELECT pg_temp.buffers('narrow') > 0, pg_temp.buffers('wide') > 0;
SELECT pg_temp.buffers('wide') < pg_temp.buffers('narrow') + 30 AS flat;
SELECT count(*) FROM unnest('{narrow,wide}'::text[]) AS q, pg_temp.pop(q, partitions => 0, auto => true);
SELECT pg_temp.buffers('wide') < pg_temp.buffers('narrow') + 30 AS flat_for_nothing;
SET queen.use_worklists = off;
SELECT pg_temp.buffers('wide') > 5000 AS a_search_is_not;
