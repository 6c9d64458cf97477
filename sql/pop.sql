-- Pop: claims cursors of a consumer group and hands out slices of segments.
--
-- Nothing in this file waits for another session. Cursors are claimed with SKIP LOCKED. Rows that
-- may have to be inserted (subscription, cursor, watermark) are inserted under a try-lock that
-- every inserter takes, and the parent row of their foreign key is share-locked with SKIP LOCKED
-- first. Lock order: advisory, queues, partitions, cursors.
--
-- Reading order: log_pop, log_pop_entry, log_pop_candidates, log_pop_claim, log_pop_deliver.

-- One pop: what the caller asked for, and what it was resolved to.
CREATE TYPE queen.log_pop_request AS (
    tenant_id      uuid,
    queue_id       uuid,
    partition_id   uuid,            -- NULL: any partition of the queue
    consumer_group text,
    worker_id      uuid,
    batch          int,
    max_partitions int,
    auto_ack       boolean,
    mode           text,
    start_at       timestamptz,
    lease          interval,
    delay          interval,        -- a segment is delivered when it is this old
    hold           interval         -- an under-full batch is held until it is this old
);
COMMENT ON TYPE queen.log_pop_request IS 'One pop with the queue''s settings that bear on it';

-- What stands between a session and a row that another one holds, as a time to try again.
CREATE FUNCTION queen.log_contention_pause() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT interval '100 milliseconds';
END;
COMMENT ON FUNCTION queen.log_contention_pause() IS
    'How long after an empty pop that met rows held by other sessions another one is worth while';

-- The answer is one result in the memory of both sides. It ends with the segment that reaches this.
CREATE FUNCTION queen.log_answer_bytes() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT 32 * 1024 * 1024;
END;
COMMENT ON FUNCTION queen.log_answer_bytes() IS
    'Stored bytes of segments after which a pop takes no further one';

CREATE FUNCTION queen.log_lease_free(worker_id uuid, lease_expires_at timestamptz,
                                     instant timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT worker_id IS NULL OR lease_expires_at IS NULL OR lease_expires_at < instant;
END;
COMMENT ON FUNCTION queen.log_lease_free(uuid, timestamptz, timestamptz) IS
    'Whether a cursor with this worker and lease end can be claimed at the given time';

CREATE FUNCTION queen.log_ready_at(created_at timestamptz, pending bigint, batch int,
                                   delay interval, hold interval) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN hold > delay AND pending < least(batch, 100) THEN created_at + hold
                WHEN delay > interval '0' THEN created_at + delay
                ELSE '-infinity' END;
END;
COMMENT ON FUNCTION queen.log_ready_at(timestamptz, bigint, int, interval, interval) IS
    'When a partition may be delivered whose oldest undelivered segment is stamped created_at and which holds pending undelivered messages; what nothing defers is ready whatever its stamp, which may be ahead of a clock that stepped back';

-- The backward step finds the greatest base at or below wanted; whether that segment covers
-- wanted is tested outside of it, or the step would walk the whole partition.
CREATE FUNCTION queen.log_head(partition_id uuid, wanted bigint)
RETURNS TABLE (base_offset bigint, created_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    (SELECT s.base_offset, s.created_at
       FROM (SELECT b.base_offset, b.end_offset, b.created_at
               FROM queen.log_segments b
              WHERE b.partition_id = log_head.partition_id AND b.base_offset <= wanted
              ORDER BY b.base_offset DESC
              LIMIT 1) s
      WHERE s.end_offset >= wanted)
    UNION ALL
    (SELECT f.base_offset, f.created_at
       FROM queen.log_segments f
      WHERE f.partition_id = log_head.partition_id AND f.base_offset > wanted
      ORDER BY f.base_offset
      LIMIT 1)
    LIMIT 1;
END;
COMMENT ON FUNCTION queen.log_head(uuid, bigint) IS
    'The segment that covers offset wanted, else the next live one; no row when there is none';

CREATE FUNCTION queen.log_offset_before(partition_id uuid, log_start bigint, last_offset bigint,
                                        stamp timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    older   bigint := log_start - 1;    -- everything up to here is older than stamp
    newest  bigint := last_offset;      -- everything above is not
    middle  bigint;
    segment record;
BEGIN
    WHILE older < newest LOOP
        middle := older + (newest - older + 1) / 2;
        SELECT s.base_offset, s.end_offset, s.created_at INTO segment
          FROM queen.log_segments s
         WHERE s.partition_id = log_offset_before.partition_id AND s.base_offset <= middle
         ORDER BY s.base_offset DESC
         LIMIT 1;
        IF NOT FOUND OR segment.end_offset <= older THEN
            older := middle;            -- nothing live in between
        ELSIF segment.created_at < stamp THEN
            older := greatest(middle, segment.end_offset);
        ELSE
            newest := segment.base_offset - 1;
        END IF;
    END LOOP;
    RETURN newest;
END
$$;
COMMENT ON FUNCTION queen.log_offset_before(uuid, bigint, bigint, timestamptz) IS
    'Last offset before the first live segment stamped at or after stamp; last_offset when there is none. Bisects: stamps ascend with offsets';

CREATE FUNCTION queen.log_subscription_key(queue_id uuid, consumer_group text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT hashtextextended(queue_id::text || consumer_group, 42);
END;
COMMENT ON FUNCTION queen.log_subscription_key(uuid, text) IS
    'Advisory lock of one group on one queue: exclusive to subscribe or to add a watermark, shared to add one cursor';

CREATE FUNCTION queen.log_contact_key(partition_id uuid, consumer_group text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT hashtextextended(partition_id::text || consumer_group, 42);
END;
COMMENT ON FUNCTION queen.log_contact_key(uuid, text) IS
    'Advisory lock of the first contact of one group with one partition';

CREATE FUNCTION queen.log_pop_problem(tenant_id uuid, queue text, partition text,
                                      consumer_group text, worker_id uuid, batch int,
                                      max_partitions int, lease_seconds int, auto_ack boolean,
                                      fill_wait boolean, mode text) RETURNS text
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE
        WHEN num_nulls(tenant_id, max_partitions, auto_ack, fill_wait) > 0
            THEN 'tenant, max_partitions, auto_ack and fill_wait are required'
        WHEN queen.log_valid_name(queue) IS NOT TRUE
            THEN 'invalid queue name'
        WHEN partition = '' OR NOT queen.log_valid_name(partition)
            THEN 'invalid partition name'
        WHEN consumer_group = '' OR queen.log_valid_name(consumer_group) IS NOT TRUE
            THEN 'invalid consumer group name'
        WHEN worker_id IS NULL AND NOT auto_ack
            THEN 'a lease needs a worker'
        WHEN (batch BETWEEN 1 AND 10000) IS NOT TRUE
            THEN 'batch must be between 1 and 10000'
        WHEN lease_seconds > 86400
            THEN 'lease_seconds must be at most 86400'
        WHEN mode NOT IN ('all', 'new')
            THEN 'mode must be all or new'
        END;
END;
COMMENT ON FUNCTION queen.log_pop_problem(uuid, text, text, text, uuid, int, int, int, boolean,
                                          boolean, text) IS
    'Why these are not the arguments of a pop; NULL when they are';

-- Queue mode never skips a backlog, whatever the request says.
CREATE FUNCTION queen.log_subscribe(req queen.log_pop_request, named text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    whole   boolean := req.consumer_group = '__QUEUE_MODE__'
                       OR (req.start_at IS NULL AND req.mode IS DISTINCT FROM 'new');
    since   timestamptz := CASE WHEN whole THEN 'epoch'
                                ELSE coalesce(req.start_at, clock_timestamp()) END;
BEGIN
    PERFORM FROM queen.consumer_groups_metadata m
      WHERE m.queue_id = req.queue_id AND m.consumer_group = req.consumer_group
        AND m.partition_name IN ('', named);
    IF FOUND THEN
        RETURN true;
    END IF;

    IF NOT pg_try_advisory_xact_lock(
               queen.log_subscription_key(req.queue_id, req.consumer_group)) THEN
        RETURN false;
    END IF;
    PERFORM FROM queen.queues q WHERE q.id = req.queue_id FOR KEY SHARE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO queen.consumer_groups_metadata
           (tenant_id, consumer_group, queue_id, partition_name, subscription_mode,
            subscription_timestamp)
    VALUES (req.tenant_id, req.consumer_group, req.queue_id, named,
            CASE WHEN whole THEN 'all' WHEN req.start_at IS NULL THEN 'new' ELSE 'timestamp' END,
            since)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN true;                    -- another session was faster, and has seeded
    END IF;
    IF named <> '' THEN
        RETURN true;                    -- there is nothing to seed yet
    END IF;

    -- A conflict with a cursor that another session has changed would wait for its transaction.
    INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
    SELECT p.id, req.consumer_group,
           CASE WHEN whole THEN p.log_start - 1
                WHEN req.start_at IS NULL THEN p.last_offset
                ELSE queen.log_offset_before(p.id, p.log_start, p.last_offset, since) END
      FROM (SELECT id, log_start, last_offset
              FROM queen.log_partitions
             WHERE queue_id = req.queue_id
             ORDER BY id
               FOR KEY SHARE SKIP LOCKED) p
     WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                        WHERE c.partition_id = p.id AND c.consumer_group = req.consumer_group)
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
COMMENT ON FUNCTION queen.log_subscribe(queen.log_pop_request, text) IS
    'First contact of a group with a queue (named is empty): stores the durable subscription and seeds a cursor on every partition that exists. Or its first look for the partition of that name, which does not exist: stores where the group starts on it. False when another session is at it';

-- What came to a partition that did not exist when the group looked for it is new, whatever its
-- stamp. And when a subscription to what is new is ahead of the clock, that stepped back, and
-- stamps after the subscription are less than it. Rather deliver too much than skip something.
CREATE FUNCTION queen.log_subscription_start(m queen.consumer_groups_metadata) RETURNS timestamptz
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN m.subscription_mode = 'new'
                     AND (m.partition_name <> ''
                          OR m.subscription_timestamp > pg_catalog.clock_timestamp())
                THEN '-infinity' ELSE m.subscription_timestamp END;
END;
COMMENT ON FUNCTION queen.log_subscription_start(queen.consumer_groups_metadata) IS
    'A group starts at the first segment stamped at or after this on partitions that it has not met';

-- A partition that the group has not met: created after the subscription, or popped by name.
CREATE FUNCTION queen.log_first_contact(req queen.log_pop_request, wanted uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    since   timestamptz;
    met     uuid[];
BEGIN
    -- Held exclusively by a session that seeds all cursors of the group.
    IF NOT pg_try_advisory_xact_lock_shared(
               queen.log_subscription_key(req.queue_id, req.consumer_group)) THEN
        RETURN '{}';
    END IF;
    IF req.consumer_group <> '__QUEUE_MODE__' THEN
        SELECT queen.log_subscription_start(m) INTO since
          FROM queen.consumer_groups_metadata m
         WHERE m.queue_id = req.queue_id AND m.consumer_group = req.consumer_group
           AND m.partition_name IN ('', (SELECT p.name FROM queen.log_partitions p
                                          WHERE p.id = req.partition_id))
         ORDER BY m.partition_name
         LIMIT 1;
        since := coalesce(since, req.start_at);
    END IF;

    WITH strange AS MATERIALIZED (
        SELECT k.id
          FROM unnest(wanted) AS k (id)
         WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                            WHERE c.partition_id = k.id AND c.consumer_group = req.consumer_group)
    ), added AS (
        INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
        SELECT p.id, req.consumer_group,
               CASE WHEN since IS NOT NULL
                        THEN queen.log_offset_before(p.id, p.log_start, p.last_offset, since)
                    WHEN req.mode = 'new' AND req.consumer_group <> '__QUEUE_MODE__'
                        THEN p.last_offset
                    ELSE -1 END
          FROM strange
         CROSS JOIN LATERAL (
               SELECT q.id, q.log_start, q.last_offset
                 FROM queen.log_partitions q
                WHERE q.id = strange.id
                  AND pg_try_advisory_xact_lock(queen.log_contact_key(q.id, req.consumer_group))
                  FOR KEY SHARE SKIP LOCKED) p
         ORDER BY p.id
        ON CONFLICT DO NOTHING
        RETURNING partition_id
    )
    SELECT coalesce(array_agg(a.partition_id), '{}') INTO met FROM added a;
    RETURN met;
END
$$;
COMMENT ON FUNCTION queen.log_first_contact(queen.log_pop_request, uuid[]) IS
    'Adds the cursors that are missing on these partitions and returns the partitions it added one on. Those of another session''s first contact are passed over';

-- Where a group starts is settled before its first pop knows whether there is anything to deliver:
-- what comes after that pop is never skipped.
CREATE FUNCTION queen.log_meet(req queen.log_pop_request) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF req.partition_id IS NULL THEN
        RETURN queen.log_subscribe(req, '');
    END IF;
    PERFORM FROM queen.log_consumers c
      WHERE c.partition_id = req.partition_id AND c.consumer_group = req.consumer_group;
    RETURN FOUND OR cardinality(queen.log_first_contact(req, ARRAY[req.partition_id])) > 0;
END
$$;
COMMENT ON FUNCTION queen.log_meet(queen.log_pop_request) IS
    'Makes sure that the group has a subscription to the queue, or a cursor on the partition that the pop names. False when other sessions are in the way';

-- One branch is cut off when the plan starts: the named partition, or those of the queue that were
-- written in the given time.
CREATE FUNCTION queen.log_pending(queue_id uuid, partition_id uuid, consumer_group text,
                                  since timestamptz, before timestamptz)
RETURNS TABLE (id uuid, committed bigint, pending bigint, worker_id uuid,
               lease_expires_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.id, coalesce(c.committed, -1),
           p.last_offset - greatest(coalesce(c.committed, -1), p.log_start - 1),
           c.worker_id, c.lease_expires_at
      FROM (SELECT w.id, w.log_start, w.last_offset
              FROM queen.log_partitions w
             WHERE log_pending.partition_id IS NULL AND w.queue_id = log_pending.queue_id
               AND w.last_write_at >= since AND w.last_write_at < before
            UNION ALL
            SELECT n.id, n.log_start, n.last_offset
              FROM queen.log_partitions n
             WHERE n.id = log_pending.partition_id) p
      LEFT JOIN queen.log_consumers c
        ON c.partition_id = p.id AND c.consumer_group = log_pending.consumer_group
     WHERE p.last_offset > coalesce(c.committed, -1);
END;
COMMENT ON FUNCTION queen.log_pending(uuid, uuid, text, timestamptz, timestamptz) IS
    'Partitions with offsets behind the group''s cursor, leased or not: the named one, or those of the queue last written from since to before. pending is an upper bound of what they hold';

CREATE FUNCTION queen.log_pop_due(req queen.log_pop_request, since timestamptz, before timestamptz,
                                  instant timestamptz)
RETURNS TABLE (id uuid, pending bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT d.id, d.pending
      FROM queen.log_pending(req.queue_id, req.partition_id, req.consumer_group, since, before) d
     WHERE queen.log_lease_free(d.worker_id, d.lease_expires_at, instant)
       AND (greatest(req.delay, req.hold) = interval '0'
            OR coalesce((SELECT queen.log_ready_at(h.created_at, d.pending, req.batch, req.delay,
                                                   req.hold)
                           FROM queen.log_head(d.id, d.committed + 1) h) <= instant, true));
END;
COMMENT ON FUNCTION queen.log_pop_due(queen.log_pop_request, timestamptz, timestamptz, timestamptz) IS
    'Pending partitions without a live lease and with nothing that defers them';

-- last_write_at is at most a second old and is stamped before the commit: hence the slack. A
-- watermark that is ahead of the clock says nothing about what was written since it stepped back.
CREATE FUNCTION queen.log_search_floor(queue_id uuid, consumer_group text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT w.last_empty_scan_at
                       FROM queen.consumer_watermarks w
                      WHERE w.queue_id = log_search_floor.queue_id
                        AND w.consumer_group = log_search_floor.consumer_group
                        AND w.updated_at <= clock_timestamp()), 'epoch')
           - interval '2 minutes';
END
$$;
COMMENT ON FUNCTION queen.log_search_floor(uuid, text) IS
    'No partition of the queue last written before this has work for the group';

-- The search walks the index on the time of the last write and stops when it has enough. Every
-- other one begins at the oldest, so that what waits longest is met; the others begin anywhere, so
-- that partitions which are handed out in vain again and again do not hide the rest.
CREATE FUNCTION queen.log_pop_candidates(req queen.log_pop_request)
RETURNS TABLE (partition_id uuid, pending bigint)
LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := clock_timestamp();
    since   timestamptz := queen.log_search_floor(req.queue_id, req.consumer_group);
    pivot   timestamptz := since;
    most    int := CASE WHEN req.partition_id IS NOT NULL THEN 1
                        WHEN req.max_partitions <= 0 THEN 512
                        ELSE greatest(64, least(4 * req.max_partitions::bigint, 512)) END;
BEGIN
    IF req.partition_id IS NULL AND random() < 0.5 THEN
        SELECT min(p.last_write_at) + random() * (max(p.last_write_at) - min(p.last_write_at))
          INTO pivot
          FROM queen.log_partitions p
         WHERE p.queue_id = req.queue_id AND p.last_write_at >= since;
    END IF;
    RETURN QUERY
    SELECT d.id, d.pending
      FROM (SELECT * FROM queen.log_pop_due(req, pivot, 'infinity', instant)
            UNION ALL
            SELECT * FROM queen.log_pop_due(req, since, pivot, instant)
            LIMIT most) d
     ORDER BY random();
END
$$;
COMMENT ON FUNCTION queen.log_pop_candidates(queen.log_pop_request) IS
    'Partitions that are worth a claim, in random order, with an upper bound of what they hold. Takes no lock';

CREATE FUNCTION queen.log_pop_claim(req queen.log_pop_request, wanted uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    claimed uuid[];
BEGIN
    claimed := ARRAY(
        SELECT k.id
          FROM unnest(wanted) WITH ORDINALITY AS k (id, ord)
         CROSS JOIN LATERAL (
               SELECT
                 FROM queen.log_consumers d
                WHERE d.partition_id = k.id AND d.consumer_group = req.consumer_group
                  AND queen.log_lease_free(d.worker_id, d.lease_expires_at, clock_timestamp())
                  FOR NO KEY UPDATE SKIP LOCKED) c
         ORDER BY k.ord);
    -- The others are held, were leased a moment ago, or have no cursor yet. A cursor that this
    -- transaction adds is its own.
    IF cardinality(claimed) < cardinality(wanted) THEN
        claimed := claimed || queen.log_first_contact(
            req, ARRAY(SELECT w.id FROM unnest(wanted) AS w (id)
                        WHERE w.id <> ALL (claimed)));
    END IF;
    RETURN claimed;
END
$$;
COMMENT ON FUNCTION queen.log_pop_claim(queen.log_pop_request, uuid[]) IS
    'Locks the cursors on these partitions that are free, and returns their partitions in claim order';

CREATE FUNCTION queen.log_pop_take(req queen.log_pop_request, partition_id uuid,
                                   first_offset bigint, last_offset bigint, messages bigint)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := clock_timestamp();
BEGIN
    IF req.auto_ack THEN
        UPDATE queen.log_consumers c
           SET committed = last_offset, total_consumed = c.total_consumed + messages,
               batch_end = NULL, worker_id = NULL, lease_expires_at = NULL
         WHERE c.partition_id = log_pop_take.partition_id AND c.consumer_group = req.consumer_group;
    ELSE
        UPDATE queen.log_consumers c
           SET batch_end = last_offset, worker_id = req.worker_id,
               lease_acquired_at = instant, lease_expires_at = instant + req.lease,
               attempt_count = CASE WHEN c.attempt_offset = first_offset
                                    THEN c.attempt_count + 1 ELSE 1 END,
               attempt_offset = first_offset
         WHERE c.partition_id = log_pop_take.partition_id AND c.consumer_group = req.consumer_group;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_pop_take(queen.log_pop_request, uuid, bigint, bigint, bigint) IS
    'Leases a batch on a claimed cursor, or passes it with auto_ack. The cursor of a lease stays where it is, also when the batch starts behind a gap';

-- The read is one statement, in a snapshot younger than the locks on the claimed cursors. Offsets
-- are dense but for what retention took away in front of the head, so a range of offsets bounds it.
-- OFFSET 0 keeps each sub-query a probe or a range scan of a primary key.
CREATE FUNCTION queen.log_pop_deliver(req queen.log_pop_request, claimed uuid[], budget int,
                                      room bigint)
RETURNS TABLE (partition_id uuid, partition text, base_offset bigint, end_offset bigint,
               first_offset bigint, last_offset bigint, created_at timestamptz, attempt int,
               blob bytea)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    instant timestamptz := clock_timestamp();
    slice   record;
BEGIN
    FOR slice IN
        WITH ready AS MATERIALIZED (
            SELECT k.ord, k.id, p.name, h.base_offset AS head,
                   greatest(h.base_offset, c.committed + 1) AS start,
                   c.attempt_offset, c.attempt_count
              FROM unnest(claimed) WITH ORDINALITY AS k (id, ord)
             CROSS JOIN LATERAL (
                   SELECT d.committed, d.attempt_offset, d.attempt_count
                     FROM queen.log_consumers d
                    WHERE d.partition_id = k.id AND d.consumer_group = req.consumer_group
                   OFFSET 0) c
             CROSS JOIN LATERAL (
                   SELECT q.name, q.last_offset FROM queen.log_partitions q WHERE q.id = k.id
                   OFFSET 0) p
             CROSS JOIN LATERAL queen.log_head(k.id, c.committed + 1) h
             WHERE queen.log_ready_at(h.created_at,
                                      p.last_offset - greatest(h.base_offset, c.committed + 1) + 1,
                                      req.batch, req.delay, req.hold) <= instant
        ), slices AS MATERIALIZED (
            SELECT r.*, s.*, greatest(s.base_offset, r.start) AS first_offset,
                   coalesce(sum(s.end_offset - greatest(s.base_offset, r.start) + 1)
                                OVER (ORDER BY r.ord, s.base_offset
                                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint
                       AS before,
                   coalesce(sum(length(s.blob)) OVER (ORDER BY r.ord, s.base_offset
                                                      ROWS BETWEEN UNBOUNDED PRECEDING
                                                               AND 1 PRECEDING), 0)
                       AS bytes_before
              FROM ready r
             CROSS JOIN LATERAL (
                   SELECT t.base_offset, t.end_offset, t.created_at, t.blob
                     FROM queen.log_segments t
                    WHERE t.partition_id = r.id
                      AND t.base_offset >= r.head AND t.base_offset < r.start + budget
                      AND (req.delay = interval '0' OR t.created_at <= instant - req.delay)
                   OFFSET 0) s
        ), taken AS MATERIALIZED (
            SELECT s.*, least(s.end_offset, s.first_offset + budget - s.before - 1) AS last_offset
              FROM slices s
             WHERE s.before < budget AND s.bytes_before < room
        )
        SELECT t.*, min(t.first_offset) OVER batch AS batch_first,
               max(t.last_offset) OVER batch AS batch_last,
               (sum(t.last_offset - t.first_offset + 1) OVER batch)::bigint AS messages
          FROM taken t
        WINDOW batch AS (PARTITION BY t.ord)
         ORDER BY t.ord, t.base_offset
    LOOP
        partition_id := slice.id;
        partition := slice.name;
        base_offset := slice.base_offset;
        end_offset := slice.end_offset;
        first_offset := slice.first_offset;
        last_offset := slice.last_offset;
        created_at := slice.created_at;
        attempt := CASE WHEN NOT req.auto_ack AND slice.attempt_offset = slice.batch_first
                        THEN slice.attempt_count + 1 ELSE 1 END;
        blob := slice.blob;
        RETURN NEXT;
        IF slice.last_offset = slice.batch_last THEN
            PERFORM queen.log_pop_take(req, slice.id, slice.batch_first, slice.batch_last,
                                       slice.messages);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_pop_deliver(queen.log_pop_request, uuid[], int, bigint) IS
    'Reads up to budget messages, in segments until they reach room bytes, from the claimed partitions in claim order, leases what it read (or passes it, with auto_ack), and returns the slices';

-- Both facts, the last offset and that there is no segment at all, come from one snapshot.
CREATE FUNCTION queen.log_pop_seal(req queen.log_pop_request, claimed uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    empty   uuid;
BEGIN
    FOREACH empty IN ARRAY claimed LOOP
        UPDATE queen.log_consumers c
           SET committed = p.last_offset,
               batch_end = NULL, worker_id = NULL, lease_expires_at = NULL
          FROM queen.log_partitions p
         WHERE p.id = empty
           AND c.partition_id = empty AND c.consumer_group = req.consumer_group
           AND c.committed < p.last_offset
           AND NOT EXISTS (SELECT FROM queen.log_segments s WHERE s.partition_id = p.id);
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_pop_seal(queen.log_pop_request, uuid[]) IS
    'Moves cursors that were claimed but yielded nothing past a backlog of which retention has removed every segment';

CREATE FUNCTION queen.log_pop_retry_at(req queen.log_pop_request) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    instant   timestamptz := clock_timestamp();
    since     timestamptz := queen.log_search_floor(req.queue_id, req.consumer_group);
    deferring boolean := greatest(req.delay, req.hold) > interval '0';
BEGIN
    RETURN (
        SELECT min(CASE WHEN NOT queen.log_lease_free(d.worker_id, d.lease_expires_at, instant)
                            THEN d.lease_expires_at
                        ELSE greatest(
                            instant + queen.log_contention_pause(),
                            (SELECT queen.log_ready_at(h.created_at, d.pending, req.batch,
                                                       req.delay, req.hold)
                               FROM queen.log_head(d.id, d.committed + 1) h
                              WHERE deferring)) END)
          FROM queen.log_pending(req.queue_id, req.partition_id, req.consumer_group, since,
                                 'infinity') d);
END
$$;
COMMENT ON FUNCTION queen.log_pop_retry_at(queen.log_pop_request) IS
    'For a pop that found nothing: when the first lease ends, the first deferred segment matures or a held row may be free; NULL when nothing is pending';

-- A transaction that is still open may have stamped last_write_at when it began, so the watermark
-- stays behind the oldest one that has written. Its start is read before the search for pending
-- partitions: a writer that the first no longer sees, the second does. Leases do not count: what
-- is merely leased comes back. A group deletion or seek removes the row; one that ran before the
-- row was added began before updated_at and holds the watermark back as well.
CREATE FUNCTION queen.log_advance_watermark(req queen.log_pop_request) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    mark    queen.consumer_watermarks;
    since   timestamptz := queen.log_search_floor(req.queue_id, req.consumer_group);
    oldest  timestamptz;
BEGIN
    SELECT * INTO mark
      FROM queen.consumer_watermarks w
     WHERE w.queue_id = req.queue_id AND w.consumer_group = req.consumer_group;
    IF NOT FOUND THEN
        IF pg_try_advisory_xact_lock(
               queen.log_subscription_key(req.queue_id, req.consumer_group)) THEN
            INSERT INTO queen.consumer_watermarks (queue_id, consumer_group)
            SELECT q.id, req.consumer_group
              FROM queen.queues q
             WHERE q.id = req.queue_id
               FOR KEY SHARE SKIP LOCKED
            ON CONFLICT DO NOTHING;
        END IF;
        RETURN;
    END IF;

    IF mark.updated_at BETWEEN clock_timestamp() - interval '30 seconds' AND clock_timestamp() THEN
        RETURN;
    END IF;
    PERFORM FROM queen.consumer_watermarks w
      WHERE w.queue_id = req.queue_id AND w.consumer_group = req.consumer_group
        FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Without track_activities a writer shows no start: then the watermark stays.
    SELECT least(now(), min(coalesce(a.xact_start, '-infinity'))) INTO oldest
      FROM pg_catalog.pg_stat_activity a
     WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL;
    UPDATE queen.consumer_watermarks w
       SET updated_at = clock_timestamp(),
           last_empty_scan_at = CASE
               WHEN w.updated_at > clock_timestamp() THEN 'epoch'
               WHEN oldest <= w.updated_at
                    OR EXISTS (SELECT
                                 FROM queen.log_pending(req.queue_id, NULL, req.consumer_group,
                                                        since, 'infinity'))
               THEN w.last_empty_scan_at
               ELSE oldest END
     WHERE w.queue_id = req.queue_id AND w.consumer_group = req.consumer_group;
END
$$;
COMMENT ON FUNCTION queen.log_advance_watermark(queen.log_pop_request) IS
    'After a wildcard pop that found nothing, at most every 30 seconds: moves the floor of the search up when nothing at all is pending';

CREATE FUNCTION queen.log_pop_entry(req queen.log_pop_request)
RETURNS TABLE (status text, partition_id uuid, partition text, base_offset bigint,
               end_offset bigint, first_offset bigint, last_offset bigint, created_at timestamptz,
               attempt int, blob bytea, retry_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    candidates uuid[];
    promises   bigint[];                -- upper bound of what each candidate holds
    next       int := 1;
    budget     int := req.batch;
    room       bigint := queen.log_answer_bytes();
    places     int := CASE WHEN req.max_partitions <= 0 THEN req.batch ELSE req.max_partitions END;
    promised   bigint;
    chunk      uuid[];
    served     uuid[];
    leases     int := 0;
    slice      record;
BEGIN
    IF NOT queen.log_meet(req) THEN
        status := 'empty';
        retry_at := clock_timestamp() + queen.log_contention_pause();
        PERFORM queen.stat_pop(req.queue_id, 0, 0, true);
        RETURN NEXT;
        RETURN;
    END IF;

    SELECT array_agg(c.partition_id), array_agg(c.pending)
      INTO candidates, promises
      FROM queen.log_pop_candidates(req) c;
    status := 'segment';
    WHILE budget > 0 AND room > 0 AND places > 0 AND next <= cardinality(candidates) LOOP
        -- No more cursors than can be of use: what they promise stops at the budget.
        chunk := '{}';
        promised := 0;
        WHILE cardinality(chunk) < places AND promised < budget
              AND next <= cardinality(candidates) LOOP
            chunk := chunk || candidates[next];
            promised := promised + promises[next];
            next := next + 1;
        END LOOP;

        chunk := queen.log_pop_claim(req, chunk);
        served := '{}';
        FOR slice IN SELECT * FROM queen.log_pop_deliver(req, chunk, budget, room) LOOP
            IF slice.partition_id <> ALL (served) THEN
                served := served || slice.partition_id;
                IF NOT req.auto_ack THEN
                    leases := leases + 1;
                    PERFORM queen.stat_lease(slice.partition_id, req.consumer_group,
                                             clock_timestamp() + req.lease);
                END IF;
            END IF;
            partition_id := slice.partition_id;
            partition := slice.partition;
            base_offset := slice.base_offset;
            end_offset := slice.end_offset;
            first_offset := slice.first_offset;
            last_offset := slice.last_offset;
            created_at := slice.created_at;
            attempt := slice.attempt;
            blob := slice.blob;
            RETURN NEXT;
            budget := budget - (slice.last_offset - slice.first_offset + 1);
            room := room - length(slice.blob);
        END LOOP;
        places := places - cardinality(served);
        IF cardinality(served) < cardinality(chunk) THEN
            PERFORM queen.log_pop_seal(
                req, ARRAY(SELECT k.id FROM unnest(chunk) AS k (id)
                            WHERE k.id <> ALL (served)));
        END IF;
    END LOOP;

    PERFORM queen.stat_pop(req.queue_id, req.batch - budget, leases, budget = req.batch);
    IF req.auto_ack THEN
        PERFORM queen.stat_ack(req.queue_id, req.batch - budget, 0, 0, 0, 0);
    END IF;
    IF budget = req.batch THEN
        status := 'empty';
        retry_at := queen.log_pop_retry_at(req);
        RETURN NEXT;
        IF req.partition_id IS NULL THEN
            PERFORM queen.log_advance_watermark(req);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_pop_entry(queen.log_pop_request) IS
    'One pop: rows of status segment, or one row of status empty';

-- The planner's settings pin the plans to primary keys and idx_log_partitions_queue_write: with
-- statistics of a small or an empty table it prefers scans that the next minute's rows make
-- expensive, and the plans are kept for the session. The penalty that this puts on some estimates
-- must not start the just-in-time compiler.
CREATE FUNCTION queen.log_pop(tenants uuid[], queues text[], partitions text[], groups text[],
                              workers uuid[], batches int[], max_partitions int[],
                              lease_seconds int[], auto_acks boolean[], fill_waits boolean[],
                              modes text[], froms timestamptz[])
RETURNS TABLE (entry int, status text, partition_id uuid, partition text, base_offset bigint,
               end_offset bigint, first_offset bigint, last_offset bigint, created_at timestamptz,
               attempt int, blob bytea, retry_at timestamptz, error text, queue_id uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    item    record;
    req     queen.log_pop_request;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(
        cardinality(tenants), cardinality(queues), cardinality(partitions), cardinality(groups),
        cardinality(workers), cardinality(batches), cardinality(max_partitions),
        cardinality(lease_seconds), cardinality(auto_acks), cardinality(fill_waits),
        cardinality(modes), cardinality(froms));

    FOR item IN
        SELECT u.*, q.id AS queue_id, p.id AS partition_id,
               make_interval(secs => CASE WHEN u.lease_seconds > 0 THEN u.lease_seconds
                                          ELSE q.lease_time END) AS lease,
               make_interval(secs => q.delayed_processing) AS delay,
               greatest(make_interval(secs => q.window_buffer),
                        CASE WHEN u.fill_wait AND u.batch > 1
                             THEN make_interval(secs => q.min_pop_wait_time / 1000.0) END) AS hold,
               queen.log_pop_problem(u.tenant_id, u.queue, u.partition, u.consumer_group,
                                     u.worker_id, u.batch, u.max_partitions, u.lease_seconds,
                                     u.auto_ack, u.fill_wait, u.mode) AS problem
          FROM unnest(tenants, queues, partitions, groups, workers, batches, max_partitions,
                      lease_seconds, auto_acks, fill_waits, modes, froms) WITH ORDINALITY
               AS u (tenant_id, queue, partition, consumer_group, worker_id, batch, max_partitions,
                     lease_seconds, auto_ack, fill_wait, mode, start_at, ord)
          LEFT JOIN queen.queues q
            ON q.tenant_id = u.tenant_id AND q.name = u.queue AND q.deleted_at IS NULL
          LEFT JOIN queen.log_partitions p ON p.queue_id = q.id AND p.name = u.partition
         ORDER BY u.ord
    LOOP
        entry := item.ord;
        status := CASE WHEN item.problem IS NOT NULL THEN 'invalid'
                       WHEN item.partition IS NOT NULL AND item.partition_id IS NULL THEN 'empty'
                       WHEN item.queue_id IS NULL THEN 'missing' END;
        req := ROW(item.tenant_id, item.queue_id, item.partition_id, item.consumer_group,
                   item.worker_id, item.batch,
                   CASE WHEN item.partition_id IS NULL THEN item.max_partitions ELSE 1 END,
                   item.auto_ack, item.mode, item.start_at, item.lease, item.delay, item.hold);
        IF status IS NOT NULL THEN
            error := item.problem;
            queue_id := CASE WHEN status = 'empty' THEN item.queue_id END;
            retry_at := CASE WHEN queue_id IS NOT NULL
                                  AND NOT queen.log_subscribe(req, item.partition)
                             THEN clock_timestamp() + queen.log_contention_pause() END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        RETURN QUERY
        SELECT entry, e.*, NULL::text, CASE WHEN e.status = 'empty' THEN req.queue_id END
          FROM queen.log_pop_entry(req) e;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_pop(uuid[], text[], text[], text[], uuid[], int[], int[], int[],
                                  boolean[], boolean[], text[], timestamptz[]) IS
    'Pops for consumer groups. Aligned arrays, one element per pop: tenant, queue, partition (NULL: any), group, worker (becomes the lease id), batch (1..10000 messages), max_partitions (<= 0: no cap), lease_seconds (<= 0 or NULL: the queue''s lease_time; at most 86400), auto_ack, fill_wait, mode (all or new) and start time of a first contact. One row per slice of a segment, or one row with status empty, missing or invalid. Never waits for a lock. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED';
