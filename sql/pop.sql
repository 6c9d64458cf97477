-- Pop: the function itself is C (src/bgworker/pop.c); here is what it calls when it has to:
-- subscriptions, first contacts, and searches of the tables where there is no work list.
--
-- Nothing in this file waits for another session. Rows that may have to be inserted (subscription,
-- cursor, watermark) are inserted under a try-lock that every inserter takes, and the parent row of
-- their foreign key is share-locked with SKIP LOCKED first. Lock order: advisory, queues,
-- partitions, cursors.
--
-- Most of it runs with the planner's settings that pop_rare.c makes.

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

CREATE FUNCTION queen.log_contention_pause() RETURNS interval
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_contention_pause() IS
    'How long after an empty pop that met rows held by other sessions another one is worth while';

CREATE FUNCTION queen.log_answer_bytes() RETURNS bigint
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_answer_bytes() IS
    'Bytes of segments, before compression, after which a call takes no further one, except the first one of an entry';

CREATE FUNCTION queen.log_pop_problem(tenant_id uuid, queue text, partition text,
                                      consumer_group text, worker_id uuid, batch int,
                                      max_partitions int, lease_seconds int, auto_ack boolean,
                                      fill_wait boolean, mode text) RETURNS text
LANGUAGE c IMMUTABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_pop_problem(uuid, text, text, text, uuid, int, int, int, boolean,
                                          boolean, text) IS
    'Why these are not the arguments of a pop; NULL when they are';

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

-- What a subscription costs does not depend on how many partitions the queue has: a group gets its
-- cursors where it first claims something. Where it starts is known by stamps, except where some
-- stamps are of messages that have arrived and others of messages on their way. A message on its
-- way is stamped after the oldest writer began, so cursors are set on the partitions that hold
-- something stamped since, and on others everything stamped since comes after the subscription.
--
-- Queue mode never skips a backlog, whatever the request says.
CREATE FUNCTION queen.log_subscribe(req queen.log_pop_request, named text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    whole   boolean := req.consumer_group = '__QUEUE_MODE__'
                       OR (req.start_at IS NULL AND req.mode IS DISTINCT FROM 'new');
    since   timestamptz := CASE WHEN whole THEN 'epoch'
                                ELSE coalesce(req.start_at, clock_timestamp()) END;
    oldest  timestamptz;
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
    IF named = '' THEN
        oldest := queen.log_oldest_writer();
    END IF;
    INSERT INTO queen.consumer_groups_metadata
           (tenant_id, consumer_group, queue_id, partition_name, subscription_mode,
            subscription_timestamp, existing_from)
    VALUES (req.tenant_id, req.consumer_group, req.queue_id, named,
            CASE WHEN whole THEN 'all' WHEN req.start_at IS NULL THEN 'new' ELSE 'timestamp' END,
            since,
            CASE WHEN named <> '' THEN NULL WHEN whole THEN '-infinity'
                 ELSE least(since, oldest) END)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND OR named <> '' OR since <= oldest THEN
        RETURN true;                    -- or another session was faster
    END IF;

    -- last_write_at is at most ten seconds older than the newest stamp. A conflict with a cursor that
    -- another session has changed would wait for its transaction.
    INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
    SELECT p.id, req.consumer_group,
           CASE WHEN req.start_at IS NULL THEN p.last_offset
                ELSE queen.log_offset_before(p.id, p.log_start, p.last_offset, since) END
      FROM (SELECT id, log_start, last_offset
              FROM queen.log_partitions
             WHERE queue_id = req.queue_id AND last_write_at >= oldest - interval '10 seconds'
               AND last_created_at >= oldest AND last_offset >= 0
             ORDER BY id
               FOR KEY SHARE SKIP LOCKED) p
     WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                        WHERE c.partition_id = p.id AND c.consumer_group = req.consumer_group)
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
COMMENT ON FUNCTION queen.log_subscribe(queen.log_pop_request, text) IS
    'First contact of a group with a queue (named is empty): stores the durable subscription, and cursors where stamps alone do not say what came before it. Or its first look for the partition of that name, which does not exist: stores where the group starts on it. False when another session is at it';

-- What came to a partition that did not exist when the group looked for it is new, whatever its
-- stamp. And when a subscription to what is new is ahead of the clock, that stepped back, and
-- stamps after the subscription are less than it. Rather deliver too much than skip something.
CREATE FUNCTION queen.log_subscription_start(m queen.consumer_groups_metadata,
                                             created_at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN m.subscription_mode = 'new'
                     AND (m.partition_name <> '' OR s.start > pg_catalog.clock_timestamp())
                THEN '-infinity' ELSE s.start END
      FROM (SELECT CASE WHEN m.existing_from IS NOT NULL AND m.created_at > log_subscription_start.created_at
                        THEN m.existing_from ELSE m.subscription_timestamp END AS start) AS s;
END;
COMMENT ON FUNCTION queen.log_subscription_start(queen.consumer_groups_metadata, timestamptz) IS
    'A group starts at the first segment stamped at or after this on a partition of that age that it has not met';

-- A partition that the group has not met.
CREATE FUNCTION queen.log_first_contact(req queen.log_pop_request, wanted uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
    m       queen.consumer_groups_metadata;
    met     uuid[];
BEGIN
    -- Held exclusively by a session that subscribes, or that deletes the group.
    IF NOT pg_try_advisory_xact_lock_shared(
               queen.log_subscription_key(req.queue_id, req.consumer_group)) THEN
        RETURN '{}';
    END IF;
    IF req.consumer_group <> '__QUEUE_MODE__' THEN
        SELECT * INTO m
          FROM queen.consumer_groups_metadata s
         WHERE s.queue_id = req.queue_id AND s.consumer_group = req.consumer_group
           AND s.partition_name IN ('', (SELECT p.name FROM queen.log_partitions p
                                          WHERE p.id = req.partition_id))
         ORDER BY s.partition_name
         LIMIT 1;
    END IF;

    WITH strange AS MATERIALIZED (
        SELECT k.id
          FROM unnest(wanted) AS k (id)
         WHERE NOT EXISTS (SELECT FROM queen.log_consumers c
                            WHERE c.partition_id = k.id AND c.consumer_group = req.consumer_group)
    ), added AS (
        INSERT INTO queen.log_consumers (partition_id, consumer_group, committed)
        SELECT p.id, req.consumer_group,
               CASE WHEN req.consumer_group = '__QUEUE_MODE__' OR p.since <= 'epoch'
                        THEN p.log_start - 1
                    WHEN p.since IS NOT NULL
                        THEN queen.log_offset_before(p.id, p.log_start, p.last_offset, p.since)
                    WHEN req.mode = 'new' THEN p.last_offset
                    ELSE -1 END
          FROM strange
         CROSS JOIN LATERAL (
               SELECT q.id, q.log_start, q.last_offset,
                      CASE WHEN m.queue_id IS NULL THEN req.start_at
                           ELSE queen.log_subscription_start(m, q.created_at) END AS since
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

CREATE FUNCTION queen.log_pending(queue_id uuid, consumer_group text, since timestamptz,
                                  before timestamptz)
RETURNS TABLE (id uuid, committed bigint, pending bigint, worker_id uuid,
               lease_expires_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.id, coalesce(c.committed, -1),
           p.last_offset - greatest(coalesce(c.committed, -1), p.log_start - 1),
           c.worker_id, c.lease_expires_at
      FROM queen.log_partitions p
      LEFT JOIN queen.log_consumers c
        ON c.partition_id = p.id AND c.consumer_group = log_pending.consumer_group
     WHERE p.queue_id = log_pending.queue_id
       AND p.last_write_at >= since AND p.last_write_at < before
       AND p.last_offset > coalesce(c.committed, -1);
END;
COMMENT ON FUNCTION queen.log_pending(uuid, text, timestamptz, timestamptz) IS
    'Partitions of the queue, last written from since to before, with offsets behind the group''s cursor, leased or not. pending is an upper bound of what they hold';

CREATE FUNCTION queen.log_pop_due(req queen.log_pop_request, since timestamptz, before timestamptz,
                                  instant timestamptz)
RETURNS TABLE (id uuid)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT d.id
      FROM queen.log_pending(req.queue_id, req.consumer_group, since, before) d
     WHERE queen.log_lease_free(d.worker_id, d.lease_expires_at, instant)
       AND (greatest(req.delay, req.hold) = interval '0'
            OR coalesce((SELECT queen.log_ready_at(h.created_at, d.pending, req.batch, req.delay,
                                                   req.hold)
                           FROM queen.log_head(d.id, d.committed + 1) h) <= instant, true));
END;
COMMENT ON FUNCTION queen.log_pop_due(queen.log_pop_request, timestamptz, timestamptz, timestamptz) IS
    'Pending partitions without a live lease and with nothing that defers them';

-- last_write_at is at most ten seconds old and is stamped before the commit: hence the slack. A
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
CREATE FUNCTION queen.log_pop_candidates(req queen.log_pop_request) RETURNS SETOF uuid
LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := clock_timestamp();
    since   timestamptz := queen.log_search_floor(req.queue_id, req.consumer_group);
    pivot   timestamptz := since;
    most    int := CASE WHEN req.max_partitions <= 0 THEN 512
                        ELSE greatest(64, least(4 * req.max_partitions::bigint, 512)) END;
BEGIN
    IF random() < 0.5 THEN
        SELECT min(p.last_write_at) + random() * (max(p.last_write_at) - min(p.last_write_at))
          INTO pivot
          FROM queen.log_partitions p
         WHERE p.queue_id = req.queue_id AND p.last_write_at >= since;
    END IF;
    RETURN QUERY
    SELECT d.id
      FROM (SELECT * FROM queen.log_pop_due(req, pivot, 'infinity', instant)
            UNION ALL
            SELECT * FROM queen.log_pop_due(req, since, pivot, instant)
            LIMIT most) d
     ORDER BY random();
END
$$;
COMMENT ON FUNCTION queen.log_pop_candidates(queen.log_pop_request) IS
    'Partitions that are worth a claim, in random order. Takes no lock';

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
          FROM queen.log_pending(req.queue_id, req.consumer_group, since, 'infinity') d);
END
$$;
COMMENT ON FUNCTION queen.log_pop_retry_at(queen.log_pop_request) IS
    'For a pop that found nothing: when the first lease ends, the first deferred segment matures or a held row may be free; NULL when nothing is pending';

-- A page ends where the time of the last write changes, so that this alone says where to go on.
-- Cursors are not looked for where there never was a message, and where there is no cursor and
-- nothing has come since the group subscribed, it has nothing to get.
CREATE FUNCTION queen.log_walk(req queen.log_pop_request, after timestamptz, max_rows int)
RETURNS TABLE (partition_id uuid, written timestamptz, until timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    instant timestamptz := clock_timestamp();
    before  timestamptz;
    m       queen.consumer_groups_metadata;
BEGIN
    SELECT p.last_write_at INTO before
      FROM queen.log_partitions p
     WHERE p.queue_id = req.queue_id AND p.last_write_at > after
     ORDER BY p.queue_id, p.last_write_at
     LIMIT 1 OFFSET max_rows - 1;
    SELECT * INTO m
      FROM queen.consumer_groups_metadata s
     WHERE s.queue_id = req.queue_id AND s.consumer_group = req.consumer_group
       AND s.partition_name = '' AND s.existing_from <= instant;
    RETURN QUERY
    SELECT p.id, p.last_write_at,
           CASE WHEN p.last_offset <= coalesce(c.committed, -1)
                     OR (c.committed IS NULL AND p.created_at < m.created_at
                         AND p.last_created_at < m.existing_from) THEN NULL
                WHEN NOT queen.log_lease_free(c.worker_id, c.lease_expires_at, instant)
                    THEN c.lease_expires_at
                ELSE greatest(
                    least(p.last_write_at, instant - interval '1 microsecond'),
                    (SELECT h.created_at + req.delay
                       FROM queen.log_head(p.id, coalesce(c.committed, -1) + 1) h
                      WHERE req.delay > interval '0')) END
      FROM queen.log_partitions p
      LEFT JOIN LATERAL (SELECT k.committed, k.worker_id, k.lease_expires_at
                           FROM queen.log_consumers k
                          WHERE p.last_offset >= 0 AND k.partition_id = p.id
                            AND k.consumer_group = req.consumer_group
                         OFFSET 0) c ON true
     WHERE p.queue_id = req.queue_id AND p.last_write_at > after
       AND p.last_write_at <= coalesce(before, 'infinity')
     ORDER BY p.queue_id, p.last_write_at;
END
$$;
COMMENT ON FUNCTION queen.log_walk(queen.log_pop_request, timestamptz, int) IS
    'One step of the walk that finds what the work list of the group misses: the next partitions last written after the given time, max_rows of them and those written at the same time as the last. until: when the partition is worth a look, in the past when it is now, NULL when nothing is pending. Fewer than max_rows: that was the end';

CREATE FUNCTION queen.log_oldest_writer() RETURNS timestamptz
LANGUAGE sql
BEGIN ATOMIC
    -- Without track_activities a writer shows no start.
    SELECT least(now(), min(coalesce(a.xact_start, '-infinity')))
      FROM pg_catalog.pg_stat_activity a
     WHERE a.datname = current_database() AND a.backend_xid IS NOT NULL;
END;
COMMENT ON FUNCTION queen.log_oldest_writer() IS
    'When the oldest transaction began that is open in this database and has written; -infinity when that cannot be known';

CREATE FUNCTION queen.log_walk_start(req queen.log_pop_request, OUT floor timestamptz,
                                     OUT began timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    floor := queen.log_search_floor(req.queue_id, req.consumer_group);
    began := queen.log_oldest_writer();
END
$$;
COMMENT ON FUNCTION queen.log_walk_start(queen.log_pop_request) IS
    'Where a walk begins, and what it may raise the watermark to when it meets nothing pending';

-- A transaction that is still open may have stamped last_write_at when it began, so the watermark
-- stays behind the oldest one that has written. Its start is read before the search for pending
-- partitions: a writer that the first no longer sees, the second does. Leases do not count: what
-- is merely leased comes back. A group deletion or seek removes the row; one that ran before the
-- row was added began before updated_at and holds the watermark back as well.
CREATE FUNCTION queen.log_advance_watermark(req queen.log_pop_request, began timestamptz)
RETURNS void
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
    oldest := coalesce(began, queen.log_oldest_writer());
    UPDATE queen.consumer_watermarks w
       SET updated_at = clock_timestamp(),
           last_empty_scan_at = CASE
               WHEN w.updated_at > clock_timestamp() THEN 'epoch'
               WHEN oldest <= w.updated_at
                    OR (began IS NULL
                        AND EXISTS (SELECT FROM queen.log_pending(req.queue_id,
                                                                  req.consumer_group, since,
                                                                  'infinity')))
               THEN w.last_empty_scan_at
               ELSE oldest END
     WHERE w.queue_id = req.queue_id AND w.consumer_group = req.consumer_group;
END
$$;
COMMENT ON FUNCTION queen.log_advance_watermark(queen.log_pop_request, timestamptz) IS
    'Moves the floor of the search up, at most every 30 seconds: to began, after a walk that began so and met nothing pending; with began NULL, after a search that found nothing, when nothing at all is pending';

CREATE FUNCTION queen.log_pop(tenants uuid[], queues text[], partitions text[], groups text[],
                              workers uuid[], batches int[], max_partitions int[],
                              lease_seconds int[], auto_acks boolean[], fill_waits boolean[],
                              modes text[], froms timestamptz[])
RETURNS TABLE (entry int, status text, partition_id uuid, partition text, base_offset bigint,
               end_offset bigint, first_offset bigint, last_offset bigint, created_at timestamptz,
               attempt int, blob bytea, retry_at timestamptz, error text, queue_id uuid)
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_pop(uuid[], text[], text[], text[], uuid[], int[], int[], int[],
                                  boolean[], boolean[], text[], timestamptz[]) IS
    'Pops for consumer groups. Aligned arrays, one element per pop: tenant, queue, partition (NULL: any), group, worker (becomes the lease id), batch (1..10000 messages), max_partitions (<= 0: no cap), lease_seconds (<= 0 or NULL: the queue''s lease_time; at most 86400), auto_ack, fill_wait, mode (all or new) and start time of a first contact. One row per slice of a segment, or one row with status empty, missing or invalid. Never waits for a lock. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED';
