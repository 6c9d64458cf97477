-- Pop and ack for the default tenant, shown as a client sees them. Needs segments.sql.
-- Whoever loads this starts with an empty log.
SET client_min_messages = warning;
TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;

-- Lease ids are made of small numbers, so that expected output holds still.
CREATE FUNCTION pg_temp.worker(n int) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(n::text, 32, '0')::uuid;
$$;

CREATE FUNCTION pg_temp.pop_rows(queue text, part text DEFAULT NULL,
                                 grp text DEFAULT '__QUEUE_MODE__', worker int DEFAULT 1,
                                 batch int DEFAULT 10, partitions int DEFAULT 1,
                                 lease int DEFAULT NULL, auto boolean DEFAULT false,
                                 fill boolean DEFAULT false, mode text DEFAULT NULL,
                                 since timestamptz DEFAULT NULL)
RETURNS TABLE (entry int, status text, partition_id uuid, partition text, base_offset bigint,
               end_offset bigint, first_offset bigint, last_offset bigint, created_at timestamptz,
               attempt int, blob bytea, retry_at timestamptz, error text,
               queue_id uuid)
LANGUAGE sql AS $$
    SELECT * FROM queen.log_pop(ARRAY[pg_temp.tenant()], ARRAY[queue], ARRAY[part], ARRAY[grp],
                                ARRAY[pg_temp.worker(worker)], ARRAY[batch], ARRAY[partitions],
                                ARRAY[lease], ARRAY[auto], ARRAY[fill], ARRAY[mode], ARRAY[since]);
$$;

-- One row per slice, with the transaction ids of what it delivers.
CREATE FUNCTION pg_temp.pop(queue text, part text DEFAULT NULL, grp text DEFAULT '__QUEUE_MODE__',
                            worker int DEFAULT 1, batch int DEFAULT 10, partitions int DEFAULT 1,
                            lease int DEFAULT NULL, auto boolean DEFAULT false,
                            fill boolean DEFAULT false, mode text DEFAULT NULL,
                            since timestamptz DEFAULT NULL)
RETURNS TABLE (status text, partition text, first bigint, last bigint, attempt int, ids text)
LANGUAGE sql AS $$
    SELECT r.status, r.partition, r.first_offset, r.last_offset, r.attempt,
           (SELECT string_agg((queen.log_frame(r.blob, (o - r.base_offset)::int)).transaction_id,
                              ' ' ORDER BY o)
              FROM generate_series(r.first_offset, r.last_offset) AS o)
      FROM pg_temp.pop_rows(queue, part, grp, worker, batch, partitions, lease, auto, fill, mode,
                            since) AS r;
$$;

-- One acknowledgement. One status stands for all, in one entry; worker NULL sends no lease id.
CREATE FUNCTION pg_temp.ack(queue text, part text, worker int, ids text[],
                            statuses text[] DEFAULT '{completed}',
                            grp text DEFAULT '__QUEUE_MODE__', errors text[] DEFAULT NULL)
RETURNS TABLE (id text, success boolean, error text, released boolean, dlq boolean, noop boolean,
               more boolean)
LANGUAGE sql AS $$
    SELECT ids[row_number() OVER (ORDER BY a.ordinality)], a.success, a.error, a.lease_released, a.dlq,
           a.noop, a.more
      FROM (SELECT ARRAY[CASE WHEN cardinality(statuses) = 1 AND errors IS NULL THEN 1
                              ELSE cardinality(ids) END] AS n) AS c
     CROSS JOIN LATERAL queen.log_ack(
               array_fill(pg_temp.tenant(), n), array_fill(pg_temp.partition_id(queue, part), n),
               array_fill(grp, n), array_fill(pg_temp.worker(worker), n), array_fill(1, n),
               CASE WHEN cardinality(statuses) = 1 THEN array_fill(statuses[1], n)
                    ELSE statuses END,
               coalesce(errors, array_fill(NULL::text, n)), array_fill(cardinality(ids) / n[1], n), ids,
               false) WITH ORDINALITY AS a
     CROSS JOIN generate_series(1, a.messages);
$$;

CREATE FUNCTION pg_temp.cursors(queue text)
RETURNS TABLE (partition text, grp text, committed bigint, batch_end bigint, leased boolean,
               retries int, attempt_offset bigint, attempts int, consumed bigint)
LANGUAGE sql AS $$
    SELECT p.name, c.consumer_group, c.committed, c.batch_end,
           c.worker_id IS NOT NULL AND c.lease_expires_at > clock_timestamp(),
           c.batch_retry_count, c.attempt_offset, c.attempt_count, c.total_consumed
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
      JOIN queen.log_consumers AS c ON c.partition_id = p.id
     WHERE q.name = queue
     ORDER BY p.name COLLATE "C", c.consumer_group COLLATE "C";
$$;

-- Time passes: leases run out, or messages get older.
CREATE FUNCTION pg_temp.expire(queue text) RETURNS void
LANGUAGE sql AS $$
    UPDATE queen.log_consumers AS c SET lease_expires_at = clock_timestamp() - interval '1 second'
      FROM queen.queues AS q JOIN queen.log_partitions AS p ON p.queue_id = q.id
     WHERE q.name = queue AND c.partition_id = p.id AND c.worker_id IS NOT NULL;
    SELECT queen.stat_doubt(q.id) FROM queen.queues AS q WHERE q.name = queue;
$$;

CREATE FUNCTION pg_temp.age(queue text, part text, by interval) RETURNS void
LANGUAGE sql AS $$
    UPDATE queen.log_segments SET created_at = created_at - by
     WHERE partition_id = pg_temp.partition_id(queue, part);
    UPDATE queen.log_txns SET created_at = created_at - by
     WHERE partition_id = pg_temp.partition_id(queue, part);
    UPDATE queen.log_due SET retention_at = retention_at - by, purge_at = purge_at - by
     WHERE partition_id = pg_temp.partition_id(queue, part);
    SELECT queen.stat_doubt(q.id) FROM queen.queues AS q WHERE q.name = queue;
$$;

-- What retention does: a prefix of whole segments goes.
CREATE FUNCTION pg_temp.retain_from(queue text, part text, start bigint) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM queen.log_segments
     WHERE partition_id = pg_temp.partition_id(queue, part) AND end_offset < start;
    UPDATE queen.log_partitions SET log_start = start WHERE id = pg_temp.partition_id(queue, part);
$$;

-- What the sidecar purge does.
CREATE FUNCTION pg_temp.purge_to(queue text, part text, start bigint) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM queen.log_txns
     WHERE partition_id = pg_temp.partition_id(queue, part) AND end_offset < start;
    UPDATE queen.log_partitions SET txns_start = start WHERE id = pg_temp.partition_id(queue, part);
$$;

CREATE FUNCTION pg_temp.corrupt(queue text, part text, base bigint) RETURNS void
LANGUAGE sql AS $$
    UPDATE queen.log_segments
       SET blob = set_byte(blob, 0, get_byte(blob, 0) # 255)
     WHERE partition_id = pg_temp.partition_id(queue, part) AND base_offset = base;
$$;
