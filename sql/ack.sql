-- Ack: resolves transaction ids to offsets, moves cursors, releases leases, files dead letters.
--
-- The entries of a call fall into acknowledgements: same tenant, partition, group, worker and call
-- number. Several acknowledgements of one cursor take turns, in the order of their first entries.
-- All cursors are locked first, in one statement, ascending by (partition, group); nothing else is
-- locked. Everything after it runs in younger snapshots.
--
-- Reading order: log_ack, log_ack_lock, log_ack_turn.

CREATE TYPE queen.log_ack_item AS (
    entry          int,
    tenant_id      uuid,
    partition_id   uuid,
    consumer_group text,
    worker_id      uuid,
    hash           bytea,
    transaction_id text,
    status         text,
    error          text,
    turn           int,             -- which acknowledgement of its cursor it belongs to
    problem        text,            -- why it is not a valid entry
    message_offset bigint           -- where it was found, above the cursor
);
COMMENT ON TYPE queen.log_ack_item IS 'One message of an acknowledgement';

CREATE FUNCTION queen.log_ack_problem(tenant_id uuid, partition_id uuid, consumer_group text,
                                      call int, transaction_id text, status text) RETURNS text
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE
        WHEN num_nulls(tenant_id, consumer_group, call) > 0
            THEN 'tenant, group and call are required'
        WHEN partition_id IS NULL THEN 'partition id is missing'
        WHEN coalesce(transaction_id, '') = '' THEN 'transaction id is missing'
        WHEN (status IN ('completed', 'failed', 'retry', 'dlq')) IS NOT TRUE
            THEN 'status must be completed, failed, retry or dlq'
        END;
END;
COMMENT ON FUNCTION queen.log_ack_problem(uuid, uuid, text, int, text, text) IS
    'Why these do not make an entry of an acknowledgement; NULL when they do';

-- Here and below every look-up in a table is a lateral sub-query that OFFSET 0 keeps in one piece:
-- a probe or a range scan of a primary key for each row before it, whatever the planner believes
-- about the tables.
CREATE FUNCTION queen.log_ack_keys(items queen.log_ack_item[])
RETURNS TABLE (tenant_id uuid, partition_id uuid, consumer_group text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT k.tenant_id, k.partition_id, k.consumer_group
      FROM (SELECT DISTINCT i.tenant_id, i.partition_id, i.consumer_group
              FROM unnest(items) i) k
     CROSS JOIN LATERAL (
           SELECT p.queue_id FROM queen.log_partitions p WHERE p.id = k.partition_id
           OFFSET 0) p
     CROSS JOIN LATERAL (
           SELECT r.tenant_id, r.deleted_at FROM queen.queues r WHERE r.id = p.queue_id
           OFFSET 0) q
     WHERE q.tenant_id = k.tenant_id AND q.deleted_at IS NULL;
END;
COMMENT ON FUNCTION queen.log_ack_keys(queen.log_ack_item[]) IS
    'Keys of the cursors that the items name, less those on partitions of another tenant or of a deleted queue';

-- The sorted keys are the outer side of a nested loop: locks are taken in their order.
CREATE FUNCTION queen.log_ack_lock(items queen.log_ack_item[], wait boolean)
RETURNS TABLE (tenant_id uuid, partition_id uuid, consumer_group text)
LANGUAGE plpgsql AS $$
BEGIN
    IF wait THEN
        RETURN QUERY
        SELECT k.*
          FROM (SELECT o.*
                  FROM queen.log_ack_keys(items) o
                 ORDER BY o.partition_id, o.consumer_group COLLATE "C") k
         CROSS JOIN LATERAL (
               SELECT
                 FROM queen.log_consumers d
                WHERE d.partition_id = k.partition_id AND d.consumer_group = k.consumer_group
                  FOR NO KEY UPDATE) c;
    ELSE
        RETURN QUERY
        SELECT k.*
          FROM (SELECT o.*
                  FROM queen.log_ack_keys(items) o
                 ORDER BY o.partition_id, o.consumer_group COLLATE "C") k
         CROSS JOIN LATERAL (
               SELECT
                 FROM queen.log_consumers d
                WHERE d.partition_id = k.partition_id AND d.consumer_group = k.consumer_group
                  FOR NO KEY UPDATE SKIP LOCKED) c;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_ack_lock(queen.log_ack_item[], boolean) IS
    'Locks the cursors that the items name, in lock order, and returns the keys of those it holds. Without wait it passes over cursors that another session holds';

CREATE FUNCTION queen.log_ack_cursors(items queen.log_ack_item[])
RETURNS SETOF queen.log_consumers
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.*
      FROM (SELECT DISTINCT i.partition_id, i.consumer_group FROM unnest(items) i) k
     CROSS JOIN LATERAL (SELECT d.*
                           FROM queen.log_consumers d
                          WHERE d.partition_id = k.partition_id
                            AND d.consumer_group = k.consumer_group
                         OFFSET 0) c;
END;
COMMENT ON FUNCTION queen.log_ack_cursors(queen.log_ack_item[]) IS
    'The cursors that the items name, as they are now';

CREATE FUNCTION queen.log_ack_except(items queen.log_ack_item[], entries int[])
RETURNS queen.log_ack_item[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ARRAY(SELECT i
                   FROM unnest(items) i
                  WHERE NOT EXISTS (SELECT FROM unnest(entries) e WHERE e = i.entry));
END
$$;
COMMENT ON FUNCTION queen.log_ack_except(queen.log_ack_item[], int[]) IS
    'The items less those of the given entries';

CREATE FUNCTION queen.log_ack_at(item queen.log_ack_item, message_offset bigint)
RETURNS queen.log_ack_item
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT ROW(item.entry, item.tenant_id, item.partition_id, item.consumer_group, item.worker_id,
               item.hash, item.transaction_id, item.status, item.error, item.turn, item.problem,
               message_offset)::queen.log_ack_item;
END;
COMMENT ON FUNCTION queen.log_ack_at(queen.log_ack_item, bigint) IS
    'The item with its offset';

CREATE FUNCTION queen.log_sidecar(partition_id uuid, first_base bigint, last_base bigint,
                                  sorted bytea)
RETURNS TABLE (message_offset bigint, h bytea)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT t.base_offset + u.idx, u.h
      FROM (SELECT x.base_offset, x.hashes || ''::bytea AS hashes
              FROM queen.log_txns x
             WHERE x.partition_id = log_sidecar.partition_id
               AND x.base_offset BETWEEN first_base AND last_base
               AND queen.log_hashes_overlap(sorted, x.hashes)
            OFFSET 0) t
     CROSS JOIN LATERAL queen.log_unnest_hashes(t.hashes) u;
END;
COMMENT ON FUNCTION queen.log_sidecar(uuid, bigint, bigint, bytea) IS
    'The hash of each message in those sidecar rows with these bases that hold one of the sorted hashes. Fetches an out-of-line value once, by the concatenation with nothing, and not once per hash';

-- The sidecar is an index, the log is the truth: what the purge has taken away in front of a batch
-- that is still leased is read from the segments.
CREATE FUNCTION queen.log_ack_purged(items queen.log_ack_item[])
RETURNS TABLE (partition_id uuid, consumer_group text, message_offset bigint, h bytea)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.partition_id, c.consumer_group, t.base_offset + u.idx, u.h
      FROM queen.log_ack_cursors(items) c
     CROSS JOIN LATERAL (
           SELECT r.txns_start FROM queen.log_partitions r WHERE r.id = c.partition_id
           OFFSET 0) p
     CROSS JOIN LATERAL (
           SELECT g.base_offset
             FROM queen.log_head(c.partition_id, c.committed + 1) g
            WHERE c.committed + 1 < p.txns_start
           OFFSET 0) h
     CROSS JOIN LATERAL (
           SELECT s.base_offset,
                  CASE WHEN queen.log_segment_error(
                                s.blob, (s.end_offset - s.base_offset + 1)::int) IS NULL
                       THEN queen.log_segment_hashes(s.blob) END AS hashes
             FROM queen.log_segments s
            WHERE s.partition_id = c.partition_id
              AND s.base_offset BETWEEN h.base_offset AND least(c.batch_end, p.txns_start - 1)
           OFFSET 0) t
     CROSS JOIN LATERAL queen.log_unnest_hashes(t.hashes) u
     WHERE c.batch_end IS NOT NULL
       AND t.base_offset + u.idx > c.committed AND t.base_offset + u.idx <= c.batch_end;
END;
COMMENT ON FUNCTION queen.log_ack_purged(queen.log_ack_item[]) IS
    'The hash of each message of the leased batches that has no sidecar row any more, by decoding its segment; corrupt segments are passed over';

-- In both searches the hashes are gathered first and then meet the items in a hash join.

CREATE FUNCTION queen.log_ack_in_batch(items queen.log_ack_item[]) RETURNS queen.log_ack_item[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT ON (i.entry) queen.log_ack_at(i, m.message_offset)
          FROM (SELECT c.partition_id, c.consumer_group, t.message_offset, t.h, false AS purged
                  FROM queen.log_ack_cursors(items) c
                  JOIN (SELECT n.partition_id, n.consumer_group,
                               string_agg(n.hash, '' ORDER BY n.hash) AS hashes
                          FROM unnest(items) n
                         GROUP BY n.partition_id, n.consumer_group) w
                    ON w.partition_id = c.partition_id AND w.consumer_group = c.consumer_group
                 CROSS JOIN LATERAL (
                       SELECT coalesce(max(l.base_offset), 0) AS base_offset
                         FROM (SELECT b.base_offset
                                 FROM queen.log_txns b
                                WHERE b.partition_id = c.partition_id
                                  AND b.base_offset <= c.committed + 1
                                ORDER BY b.base_offset DESC
                                LIMIT 1) l) f
                 CROSS JOIN LATERAL queen.log_sidecar(
                       c.partition_id, f.base_offset,
                       coalesce(c.batch_end, 9223372036854775807), w.hashes) t
                 WHERE t.message_offset > c.committed
                   AND (c.batch_end IS NULL OR t.message_offset <= c.batch_end)
                UNION ALL
                SELECT d.*, true
                  FROM queen.log_ack_purged(
                           ARRAY(SELECT n FROM unnest(items) n WHERE n.worker_id IS NOT NULL)) d
                OFFSET 0) m
          JOIN unnest(items) i
            ON i.hash = m.h
           AND i.partition_id = m.partition_id AND i.consumer_group = m.consumer_group
         WHERE i.worker_id IS NOT NULL OR NOT m.purged
         ORDER BY i.entry, m.message_offset);
END
$$;
COMMENT ON FUNCTION queen.log_ack_in_batch(queen.log_ack_item[]) IS
    'The items whose transaction id lies above the cursor and, when a batch is leased, inside it, each with its lowest offset: by the sidecar, and for items that name their lease, which is live, also by the segments that have lost theirs';

-- A repeated ack is near the cursor, an unknown id is nowhere: look back in growing steps.
CREATE FUNCTION queen.log_ack_below(items queen.log_ack_item[]) RETURNS SETOF int
LANGUAGE plpgsql STABLE AS $$
DECLARE
    spot    record;
    sought  queen.log_ack_item[];
    hits    int[];
    high    bigint;
    low     bigint;
    step    int;
BEGIN
    FOR spot IN SELECT * FROM queen.log_ack_cursors(items) LOOP
        sought := ARRAY(SELECT i FROM unnest(items) i
                         WHERE i.partition_id = spot.partition_id
                           AND i.consumer_group = spot.consumer_group);
        high := spot.committed;
        step := 64;
        WHILE cardinality(sought) > 0 LOOP
            SELECT min(s.base_offset) INTO low
              FROM (SELECT x.base_offset
                      FROM queen.log_txns x
                     WHERE x.partition_id = spot.partition_id AND x.base_offset <= high
                     ORDER BY x.base_offset DESC
                     LIMIT step) s;
            EXIT WHEN low IS NULL;
            hits := ARRAY(
                SELECT DISTINCT i.entry
                  FROM (SELECT t.h
                          FROM queen.log_sidecar(
                                   spot.partition_id, low, high,
                                   (SELECT string_agg(i.hash, '' ORDER BY i.hash)
                                      FROM unnest(sought) i)) t
                         WHERE t.message_offset <= spot.committed
                        OFFSET 0) m
                  JOIN unnest(sought) i ON i.hash = m.h);
            RETURN QUERY SELECT h FROM unnest(hits) h;
            sought := queen.log_ack_except(sought, hits);
            high := low - 1;
            step := least(step * 4, 65536);
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_ack_below(queen.log_ack_item[]) IS
    'Entries whose transaction id lies at or below the cursor, by the sidecar';

CREATE FUNCTION queen.log_dead_letter(partition_id uuid, consumer_group text,
                                      message_offset bigint, transaction_id text, error text,
                                      retry_count int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    segment queen.log_segments;
    frame   record;
    fault   text;
BEGIN
    SELECT s.* INTO segment
      FROM queen.log_segments s
     WHERE s.partition_id = log_dead_letter.partition_id AND s.base_offset <= message_offset
     ORDER BY s.base_offset DESC
     LIMIT 1;
    fault := CASE WHEN segment.end_offset >= message_offset
                  THEN queen.log_segment_error(
                           segment.blob, (segment.end_offset - segment.base_offset + 1)::int)
                  ELSE 'its segment is gone' END;
    -- NULL for the blob yields a frame of NULLs: filing must never block the partition.
    SELECT f.* INTO frame
      FROM queen.log_frame(CASE WHEN fault IS NULL THEN segment.blob END,
                           (message_offset - segment.base_offset)::int) f;
    INSERT INTO queen.log_dlq (partition_id, consumer_group, "offset", message_id, transaction_id,
                               payload, error, retry_count, flags, producer_sub)
    VALUES (partition_id, consumer_group, message_offset, frame.message_id,
            coalesce(frame.transaction_id, transaction_id), frame.payload,
            error || coalesce(' (message unreadable: ' || fault || ')', ''),
            retry_count, coalesce(frame.flags, 0), frame.producer_sub);
END
$$;
COMMENT ON FUNCTION queen.log_dead_letter(uuid, text, bigint, text, text, int) IS
    'Files one message as a dead letter. A message that cannot be read is filed with the given transaction id and no payload, and the error says why';

-- Decides and does: all items belong to cursors that this transaction holds, and one cursor has one
-- acknowledgement here. Sorted by "C", the negative statuses stand in order of strength.
--
-- advance   no batch is leased: completed items move the cursor, negative ones are refused
-- partial   the rest of the batch stays leased
-- complete  the batch is done
-- release   the rest is delivered again; charge: and the retry budget pays for it
-- bury      the message becomes a dead letter and the cursor is past it; drop: without the letter
CREATE FUNCTION queen.log_ack_decide(items queen.log_ack_item[])
RETURNS TABLE (entry int, success boolean, error text, lease_released boolean, dlq boolean,
               queue text, partition text, more boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ack      record;
    action   text;
    target   bigint;
    released boolean;
    reset    boolean;                   -- what the budget and the attempts counted is passed
BEGIN
    FOR ack IN
        WITH named AS (
            SELECT i.*,
                   min(i.message_offset) FILTER (WHERE i.status <> 'completed')
                       OVER (PARTITION BY i.partition_id, i.consumer_group) AS signal
              FROM unnest(items) i
        ), acks AS (
            SELECT n.partition_id, n.consumer_group, n.signal,
                   max(n.message_offset) FILTER (
                       WHERE n.status = 'completed'
                         AND (n.signal IS NULL OR n.message_offset < n.signal)) AS done,
                   min(n.status COLLATE "C") FILTER (
                       WHERE n.status <> 'completed' AND n.message_offset = n.signal) AS kind,
                   min(n.transaction_id) FILTER (
                       WHERE n.message_offset = n.signal) AS transaction_id,
                   coalesce((array_agg(n.error ORDER BY n.entry) FILTER (
                                WHERE n.status <> 'completed' AND n.message_offset = n.signal
                                  AND n.error <> ''))[1],
                            (array_agg(n.error ORDER BY n.entry) FILTER (
                                WHERE n.status <> 'completed' AND n.error <> ''))[1],
                            'Retries exhausted') AS error,
                   array_agg(n.entry) AS entries, array_agg(n.status) AS statuses,
                   array_agg(n.message_offset) AS offsets
              FROM named n
             GROUP BY n.partition_id, n.consumer_group, n.signal
        )
        SELECT a.*, c.committed, c.batch_end, c.batch_retry_count,
               p.name AS partition, p.last_offset, q.id AS queue_id, q.name AS queue, q.retry_limit,
               q.dead_letter_queue OR q.dlq_after_max_retries AS letters
          FROM acks a
         CROSS JOIN LATERAL (
               SELECT * FROM queen.log_consumers d
                WHERE d.partition_id = a.partition_id AND d.consumer_group = a.consumer_group
               OFFSET 0) c
         CROSS JOIN LATERAL (
               SELECT * FROM queen.log_partitions r WHERE r.id = a.partition_id
               OFFSET 0) p
         CROSS JOIN LATERAL (
               SELECT * FROM queen.queues r WHERE r.id = p.queue_id
               OFFSET 0) q
    LOOP
        action := CASE
            WHEN ack.batch_end IS NULL THEN 'advance'
            WHEN ack.signal IS NULL AND ack.done >= ack.batch_end THEN 'complete'
            WHEN ack.signal IS NULL THEN 'partial'
            WHEN ack.kind = 'retry' THEN 'release'
            WHEN ack.kind = 'failed' AND ack.batch_retry_count < ack.retry_limit THEN 'charge'
            WHEN ack.kind = 'dlq' OR ack.letters THEN 'bury'
            ELSE 'drop' END;
        target := CASE WHEN action IN ('bury', 'drop') THEN ack.signal
                       ELSE greatest(ack.done, ack.committed) END;
        released := action NOT IN ('advance', 'partial');
        reset := action IN ('complete', 'bury') OR (action = 'advance' AND target > ack.committed);

        UPDATE queen.log_consumers c
           SET committed         = target,
               total_consumed    = c.total_consumed + target - c.committed,
               batch_end         = CASE WHEN NOT released THEN c.batch_end END,
               worker_id         = CASE WHEN NOT released THEN c.worker_id END,
               lease_expires_at  = CASE WHEN NOT released THEN c.lease_expires_at END,
               batch_retry_count = CASE WHEN reset OR action = 'drop' THEN 0
                                        WHEN action = 'charge' THEN c.batch_retry_count + 1
                                        ELSE c.batch_retry_count END,
               attempt_count     = CASE WHEN NOT reset THEN c.attempt_count ELSE 0 END,
               -- The rest of a batch stays a batch that has been delivered before.
               attempt_offset    = CASE WHEN reset THEN NULL
                                        WHEN action <> 'drop' AND target > c.committed
                                            THEN target + 1
                                        ELSE c.attempt_offset END
         WHERE c.partition_id = ack.partition_id AND c.consumer_group = ack.consumer_group;
        IF action = 'bury' THEN
            PERFORM queen.log_dead_letter(ack.partition_id, ack.consumer_group, ack.signal,
                                          ack.transaction_id, ack.error, ack.batch_retry_count);
        END IF;

        PERFORM queen.stat_ack(ack.queue_id,
                               target - ack.committed - (action IN ('bury', 'drop'))::int,
                               (action = 'charge')::int, (action = 'release')::int,
                               (action = 'bury')::int, (action = 'drop')::int);
        IF released THEN
            PERFORM queen.stat_lease_done(ack.queue_id, ack.partition_id, ack.consumer_group,
                                          ack.last_offset > target);
        END IF;

        RETURN QUERY
        SELECT e.entry, NOT e.refused, CASE WHEN e.refused THEN 'no active lease' END,
               released, action = 'bury' AND e.message_offset = ack.signal,
               ack.queue::text, ack.partition, released AND ack.last_offset > target
          FROM (SELECT u.*, action = 'advance' AND u.status <> 'completed' AS refused
                  FROM unnest(ack.entries, ack.statuses, ack.offsets)
                       AS u (entry, status, message_offset)) e;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_ack_decide(queen.log_ack_item[]) IS
    'Acts on the lowest negative signal of each acknowledgement, else on its highest completed offset, and answers each item. All items have an offset above their cursor';

CREATE FUNCTION queen.log_ack_turn(items queen.log_ack_item[])
RETURNS TABLE (entry int, success boolean, error text, lease_released boolean, dlq boolean,
               noop boolean, queue text, partition text, more boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    instant timestamptz := clock_timestamp();
    fenced  int[];
    placed  queen.log_ack_item[];
    passed  int[];
BEGIN
    fenced := ARRAY(
        SELECT i.entry
          FROM unnest(items) i
          JOIN queen.log_ack_cursors(items) c
            ON c.partition_id = i.partition_id AND c.consumer_group = i.consumer_group
         WHERE i.worker_id IS NOT NULL
           AND (c.worker_id IS DISTINCT FROM i.worker_id
                OR queen.log_lease_free(c.worker_id, c.lease_expires_at, instant)));
    IF cardinality(fenced) > 0 THEN
        RETURN QUERY
        SELECT f, false, 'invalid or expired lease', false, false, false, NULL::text, NULL::text,
               false
          FROM unnest(fenced) f;
        items := queen.log_ack_except(items, fenced);
    END IF;

    placed := queen.log_ack_in_batch(items);
    items := queen.log_ack_except(items, ARRAY(SELECT p.entry FROM unnest(placed) p));
    -- What is left was passed already, or nobody knows it.
    IF cardinality(items) > 0 THEN
        passed := ARRAY(SELECT queen.log_ack_below(items));
        RETURN QUERY
        SELECT i.entry, i.status = 'completed',
               CASE WHEN i.status <> 'completed' THEN 'already committed' END,
               false, false, i.status = 'completed', NULL::text, NULL::text, false
          FROM unnest(items) i
          JOIN unnest(passed) e ON e = i.entry;
        RETURN QUERY
        SELECT i.entry, false, 'unresolved transaction id', false, false, false, NULL::text,
               NULL::text, false
          FROM unnest(queen.log_ack_except(items, passed)) i;
    END IF;

    RETURN QUERY
    SELECT d.entry, d.success, d.error, d.lease_released, d.dlq, false, d.queue, d.partition,
           d.more
      FROM queen.log_ack_decide(placed) d;
END
$$;
COMMENT ON FUNCTION queen.log_ack_turn(queen.log_ack_item[]) IS
    'Handles one acknowledgement each of cursors that this transaction holds';

CREATE FUNCTION queen.log_ack_entries(tenants uuid[], partition_ids uuid[], groups text[],
                                      workers uuid[], calls int[], transaction_ids text[],
                                      statuses text[], errors text[])
RETURNS queen.log_ack_item[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(f.entry, f.tenant_id, f.partition_id, f.consumer_group, f.worker_id,
                   queen.log_hash(f.transaction_id), f.transaction_id, f.status, f.error,
                   dense_rank() OVER (PARTITION BY f.partition_id, f.consumer_group
                                                 ORDER BY f.first_entry),
                   queen.log_ack_problem(f.tenant_id, f.partition_id, f.consumer_group, f.call,
                                         f.transaction_id, f.status),
                   NULL)::queen.log_ack_item
          FROM (SELECT u.*,
                       min(u.entry) OVER (PARTITION BY u.tenant_id, u.partition_id,
                                                       u.consumer_group, u.worker_id, u.call)
                           AS first_entry
                  FROM unnest(tenants, partition_ids, groups, workers, calls,
                                         transaction_ids, statuses, errors) WITH ORDINALITY
                       AS u (tenant_id, partition_id, consumer_group, worker_id, call,
                             transaction_id, status, error, entry)) f);
END
$$;
COMMENT ON FUNCTION queen.log_ack_entries(uuid[], uuid[], text[], uuid[], int[], text[], text[],
                                          text[]) IS
    'The arguments of log_ack as items, with the turn of each acknowledgement';

CREATE FUNCTION queen.log_ack_apply(items queen.log_ack_item[], wait boolean)
RETURNS TABLE (entry int, success boolean, error text, lease_released boolean, dlq boolean,
               noop boolean, busy boolean, queue text, partition text, more boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    tenants     uuid[];                 -- keys of the cursors that are held
    partitions  uuid[];
    groups      text[];
    owned       queen.log_ack_item[];
BEGIN
    RETURN QUERY
    SELECT i.entry, false, i.problem, false, false, false, false, NULL::text, NULL::text, false
      FROM unnest(items) i
     WHERE i.problem IS NOT NULL;
    items := ARRAY(SELECT i FROM unnest(items) i WHERE i.problem IS NULL);

    SELECT array_agg(l.tenant_id), array_agg(l.partition_id),
           array_agg(l.consumer_group)
      INTO tenants, partitions, groups
      FROM queen.log_ack_lock(items, wait) l;
    owned := ARRAY(
        SELECT i
          FROM unnest(items) i
          JOIN unnest(tenants, partitions, groups)
                   AS h (tenant_id, partition_id, consumer_group)
            ON h.tenant_id = i.tenant_id AND h.partition_id = i.partition_id
           AND h.consumer_group = i.consumer_group);
    items := queen.log_ack_except(items, ARRAY(SELECT o.entry FROM unnest(owned) o));
    IF cardinality(items) > 0 THEN
        RETURN QUERY
        SELECT i.entry, false, CASE WHEN b.busy IS NULL THEN 'consumer not found' END,
               false, false, false, b.busy IS NOT NULL, NULL::text, NULL::text, false
          FROM unnest(items) i
          LEFT JOIN (SELECT k.*, true AS busy
                       FROM queen.log_ack_keys(items) k
                       JOIN queen.log_ack_cursors(items) c
                         ON c.partition_id = k.partition_id AND c.consumer_group = k.consumer_group
                      WHERE NOT wait) b
            ON b.tenant_id = i.tenant_id AND b.partition_id = i.partition_id
           AND b.consumer_group = i.consumer_group;
    END IF;

    FOR round IN 1..coalesce((SELECT max(o.turn) FROM unnest(owned) o), 0) LOOP
        RETURN QUERY
        SELECT t.entry, t.success, t.error, t.lease_released, t.dlq, t.noop, false, t.queue,
               t.partition, t.more
          FROM queen.log_ack_turn(ARRAY(SELECT o FROM unnest(owned) o
                                         WHERE o.turn = round)) t;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_ack_apply(queen.log_ack_item[], boolean) IS
    'Does what log_ack answers, in no particular order';

-- About the planner's settings see log_pop. Lateral look-ups run as nested loops even so; the joins
-- that remain, of items with items, are of unknown size and must be hash joins.
CREATE FUNCTION queen.log_ack(tenants uuid[], partition_ids uuid[], groups text[], workers uuid[],
                              calls int[], transaction_ids text[], statuses text[], errors text[],
                              wait boolean)
RETURNS TABLE (entry int, success boolean, error text, lease_released boolean, dlq boolean,
               noop boolean, busy boolean, queue text, partition text, more boolean)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(
        cardinality(tenants), cardinality(partition_ids), cardinality(groups),
        cardinality(workers), cardinality(calls), cardinality(transaction_ids),
        cardinality(statuses), cardinality(errors));
    RETURN QUERY
    SELECT a.*
      FROM queen.log_ack_apply(
               queen.log_ack_entries(tenants, partition_ids, groups, workers, calls,
                                     transaction_ids, statuses, errors), wait) a
     ORDER BY a.entry;
END
$$;
COMMENT ON FUNCTION queen.log_ack(uuid[], uuid[], text[], uuid[], int[], text[], text[], text[],
                                  boolean) IS
    'Acknowledges messages. Aligned arrays, one element per message: tenant, partition, group, worker (NULL: no lease check), call (equal numbers with equal tenant, partition, group and worker make one acknowledgement), transaction id, status (completed, failed, retry or dlq) and error text (for the dead letter). wait: whether to wait for cursors that another session holds, else they answer busy. One row per message in the same order; refusals are in column error. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED';
