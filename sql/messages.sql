-- Messages as people look at them: pages, newest first, and one by its transaction id.
--
-- Nothing here locks. A page costs what it shows, an index probe or two per partition, and some
-- twenty more where it does not begin or end at the newest message.

CREATE TYPE queen.message_place AS (
    partition_id   uuid,
    base_offset    bigint,
    message_offset bigint,
    created_at     timestamptz
);
COMMENT ON TYPE queen.message_place IS 'Where a message lies: its partition, its segment, its offset';

CREATE FUNCTION queen.log_message_states(partition_id uuid, first bigint, last bigint)
RETURNS TABLE (message_offset bigint, status text, queue_status text, consumed int, groups int,
               lease_expires_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT o.o,
           CASE WHEN d.letters > 0 THEN 'dead_letter'
                WHEN CASE WHEN c.groups > 0 THEN c.consumed = c.groups ELSE c.passed END
                    THEN 'completed'
                WHEN c.lease_expires_at IS NOT NULL THEN 'processing'
                ELSE 'pending' END,
           CASE WHEN d.unnamed THEN 'dead_letter' WHEN c.passed THEN 'completed'
                WHEN c.leased THEN 'processing' ELSE 'pending' END,
           c.consumed, c.groups, c.lease_expires_at
      FROM generate_series(first, last) AS o
     CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE k.named)::int AS groups,
                   count(*) FILTER (WHERE k.named AND k.passed)::int AS consumed,
                   coalesce(bool_or(k.passed) FILTER (WHERE NOT k.named), false) AS passed,
                   coalesce(bool_or(k.leased) FILTER (WHERE NOT k.named), false) AS leased,
                   min(k.lease_expires_at) FILTER (WHERE k.leased) AS lease_expires_at
              FROM (SELECT r.consumer_group <> '__QUEUE_MODE__' AS named,
                           r.committed >= o.o AS passed, r.lease_expires_at,
                           r.committed < o.o AND r.batch_end >= o.o
                               AND r.lease_expires_at >= clock_timestamp() AS leased
                      FROM queen.log_consumers AS r
                     WHERE r.partition_id = log_message_states.partition_id) AS k) AS c
     CROSS JOIN LATERAL (
            SELECT count(*) AS letters,
                   coalesce(bool_or(l.consumer_group = '__QUEUE_MODE__'), false) AS unnamed
              FROM queen.log_dlq AS l
             WHERE l.partition_id = log_message_states.partition_id AND l."offset" = o.o) AS d;
END;
COMMENT ON FUNCTION queen.log_message_states(uuid, bigint, bigint) IS
    'State of the messages first..last of a partition. status: dead_letter when a dead letter is filed, completed when every named group has passed it, or queue mode where there is no named group, processing under a live lease, else pending. queue_status: the same for queue mode alone. consumed of groups named groups have passed it. lease_expires_at: the earliest end of its live leases';

CREATE FUNCTION queen.log_message_places(place queen.log_partitions, oldest timestamptz,
                                         until timestamptz, of_status text, max_rows int)
RETURNS queen.message_place[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    low  bigint := place.log_start;
    high bigint := place.last_offset;
BEGIN
    IF oldest > '-infinity' THEN
        low := queen.log_offset_before(place.id, low, high, oldest) + 1;
    END IF;
    IF until <= place.last_created_at THEN
        high := queen.log_offset_before(place.id, low, high, until);
    END IF;
    IF of_status IS NULL THEN
        RETURN ARRAY(
            SELECT ROW(place.id, s.base_offset, o, s.created_at)::queen.message_place
              FROM (SELECT g.base_offset, g.end_offset, g.created_at
                      FROM queen.log_segments AS g
                     WHERE g.partition_id = place.id AND g.base_offset BETWEEN low AND high
                     ORDER BY g.base_offset DESC
                     LIMIT max_rows) AS s
             CROSS JOIN LATERAL generate_series(s.end_offset, s.base_offset, -1) AS o
             LIMIT max_rows);
    END IF;
    RETURN ARRAY(
        SELECT ROW(place.id, s.base_offset, m.message_offset, s.created_at)::queen.message_place
          FROM (SELECT g.base_offset, g.end_offset, g.created_at
                  FROM queen.log_segments AS g
                 WHERE g.partition_id = place.id AND g.base_offset BETWEEN low AND high
                   AND g.end_offset > high - 10000
                 ORDER BY g.base_offset DESC) AS s
         CROSS JOIN LATERAL queen.log_message_states(
                   place.id, greatest(s.base_offset, high - 9999), s.end_offset) AS m
         WHERE m.status = of_status
         ORDER BY m.message_offset DESC
         LIMIT max_rows);
END
$$;
COMMENT ON FUNCTION queen.log_message_places(queen.log_partitions, timestamptz, timestamptz, text, int) IS
    'The newest messages of a partition that were pushed from oldest on and before until (NULL: no end), at most max_rows. With a status: only those in it among the newest 10,000';

CREATE FUNCTION queen.log_message_page(tenant uuid, of_queue text, of_partition text,
                                       of_namespace text, of_task text, of_status text,
                                       since timestamptz, until timestamptz, max_rows int)
RETURNS queen.message_place[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    place  queen.log_partitions;
    page   queen.message_place[] := '{}';
    oldest timestamptz := coalesce(since, '-infinity');    -- what is older is not on the page
BEGIN
    FOR place IN
        SELECT p.*
          FROM queen.queues AS q
          JOIN queen.log_partitions AS p ON p.queue_id = q.id
         WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
           AND (of_queue IS NULL OR q.name = of_queue)
           AND (of_namespace IS NULL OR q.namespace = of_namespace)
           AND (of_task IS NULL OR q.task = of_task)
           AND (of_partition IS NULL OR p.name = of_partition)
           AND p.last_created_at >= oldest AND p.last_offset >= p.log_start
         ORDER BY p.last_created_at DESC, p.id DESC
         LIMIT CASE WHEN of_status IS NULL THEN 10000 ELSE 100 END
    LOOP
        EXIT WHEN place.last_created_at < oldest;
        page := ARRAY(
            SELECT m
              FROM unnest(page || queen.log_message_places(place, oldest, until, of_status,
                                                           max_rows)) AS m
             ORDER BY m.created_at DESC, m.partition_id DESC, m.message_offset DESC
             LIMIT max_rows);
        IF cardinality(page) = max_rows THEN
            oldest := page[max_rows].created_at;
        END IF;
    END LOOP;
    RETURN page;
END
$$;
COMMENT ON FUNCTION queen.log_message_page(uuid, text, text, text, text, text, timestamptz, timestamptz, int) IS
    'The newest messages of a tenant, at most max_rows; NULL filters match all. Looks at the 10,000 partitions that were written last, with a status at 100';

CREATE FUNCTION queen.log_message_mode(partition_ids uuid[]) RETURNS jsonb
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT jsonb_build_object(
               'hasQueueMode', c.unnamed, 'busGroupsCount', c.named,
               'type', CASE WHEN c.unnamed AND c.named > 0 THEN 'hybrid' WHEN c.unnamed THEN 'queue'
                            WHEN c.named > 0 THEN 'bus' ELSE 'none' END)
      FROM (SELECT coalesce(bool_or(k.consumer_group = '__QUEUE_MODE__'), false) AS unnamed,
                   count(DISTINCT k.consumer_group)
                       FILTER (WHERE k.consumer_group <> '__QUEUE_MODE__') AS named
              FROM unnest(partition_ids) AS p
             CROSS JOIN LATERAL (SELECT r.consumer_group FROM queen.log_consumers AS r
                                  WHERE r.partition_id = p
                                 OFFSET 0) AS k) AS c;
END;
COMMENT ON FUNCTION queen.log_message_mode(uuid[]) IS
    'How these partitions are consumed: member mode of the answers about messages';

CREATE FUNCTION queen.log_messages(tenant uuid, of_queue text, of_partition text,
                                   of_namespace text, of_task text, of_status text,
                                   since timestamptz, until timestamptz, max_rows int, skip int)
RETURNS TABLE (meta jsonb, flags int, payload bytea, mode jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    page queen.message_place[];
    mode jsonb;
BEGIN
    IF (max_rows >= 0 AND skip >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'max_rows and skip must not be negative'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    page := queen.log_message_page(tenant, of_queue, of_partition, of_namespace, of_task,
                                   of_status, since, until, max_rows + skip);
    page := page[skip + 1:];
    mode := queen.log_message_mode(ARRAY(SELECT DISTINCT m.partition_id FROM unnest(page) AS m));

    RETURN QUERY
    WITH shown AS MATERIALIZED (
        SELECT m.* FROM unnest(page) WITH ORDINALITY
               AS m (partition_id, base_offset, message_offset, created_at, ord)
    ), decoded AS MATERIALIZED (
        SELECT s.partition_id, s.base_offset + f.frame AS message_offset, f.*
          FROM (SELECT h.partition_id, h.base_offset,
                       (min(h.message_offset) - h.base_offset)::int AS first,
                       (max(h.message_offset) - h.base_offset)::int AS last
                  FROM shown AS h
                 GROUP BY h.partition_id, h.base_offset) AS s
         CROSS JOIN LATERAL (
               SELECT g.blob FROM queen.log_segments AS g
                WHERE g.partition_id = s.partition_id AND g.base_offset = s.base_offset
               OFFSET 0) AS b
         CROSS JOIN LATERAL queen.log_frames(b.blob, s.first, s.last) AS f
    ), listed AS (
        SELECT h.*, d.frame, d.flags, d.message_id, d.trace_id, d.transaction_id, d.producer_sub,
               d.payload, sum(length(d.payload)) OVER (ORDER BY h.ord) AS bytes
          FROM shown AS h
          JOIN decoded AS d ON d.partition_id = h.partition_id
                           AND d.message_offset = h.message_offset
    )
    SELECT jsonb_build_object(
               'id', l.message_id, 'transactionId', l.transaction_id,
               'txnHash', encode(queen.log_hash(l.transaction_id), 'hex'),
               'partitionId', l.partition_id, 'queuePath', q.name || '/' || p.name,
               'queue', q.name, 'partition', p.name, 'namespace', q.namespace, 'task', q.task,
               'status', t.status, 'queueStatus', t.queue_status,
               'busStatus', jsonb_build_object('consumedBy', t.consumed, 'totalGroups', t.groups),
               'traceId', l.trace_id, 'producerSub', l.producer_sub, 'queuePriority', q.priority,
               'payloadAvailable', l.bytes <= 33554432,
               'segment', jsonb_build_object('seq', l.base_offset, 'frameIdx', l.frame),
               'createdAt', queen.wire_time(l.created_at),
               'leaseExpiresAt', queen.wire_time(t.lease_expires_at)),
           l.flags, CASE WHEN l.bytes <= 33554432 THEN l.payload END, mode
      FROM listed AS l
     CROSS JOIN LATERAL (SELECT r.name, r.queue_id FROM queen.log_partitions AS r
                          WHERE r.id = l.partition_id OFFSET 0) AS p
     CROSS JOIN LATERAL (SELECT r.* FROM queen.queues AS r WHERE r.id = p.queue_id OFFSET 0) AS q
     CROSS JOIN LATERAL queen.log_message_states(l.partition_id, l.message_offset,
                                                 l.message_offset) AS t
     ORDER BY l.ord;
END
$$;
COMMENT ON FUNCTION queen.log_messages(uuid, text, text, text, text, text, timestamptz, timestamptz, int, int) IS
    'Messages of a tenant, newest first: at most max_rows after the first skip ones, pushed from since on and before until; NULL filters match all. of_status: pending, processing, completed or dead_letter. meta is the message as GET /messages shows it, without its payload; payload are the bytes of the frame (flag 4: an encryption envelope), NULL once the page holds 32 MiB. Messages of corrupt segments are left out. Raises 22023 for negative numbers';

CREATE FUNCTION queen.log_message_index(hashes bytea, hash bytea) RETURNS int
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT max(i)
      FROM generate_series(0, length(hashes) / 16 - 1) AS i
     WHERE substring(hashes, i * 16 + 1, 16) = hash;
END;
COMMENT ON FUNCTION queen.log_message_index(bytea, bytea) IS
    'Which of the 16-byte strides, counted from 0, is this hash: the last one; NULL when none is';

-- The sidecar is searched from its newest end; what it has lost, in the newest segments without one.
-- Hashes are fetched whole before their strides are compared, else each of these would fetch them.
CREATE FUNCTION queen.log_find_message(partition queen.log_partitions, transaction_id text)
RETURNS queen.message_place
LANGUAGE plpgsql STABLE AS $$
DECLARE
    hash  CONSTANT bytea := queen.log_hash(transaction_id);
    place queen.message_place;
BEGIN
    SELECT partition.id, t.base_offset, t.base_offset + u.idx, t.created_at INTO place
      FROM (SELECT x.base_offset, x.created_at, x.hashes || ''::bytea AS hashes
              FROM queen.log_txns AS x
             WHERE x.partition_id = partition.id
               AND x.base_offset >= greatest(partition.txns_start, partition.log_start)
               AND position(hash IN x.hashes) > 0
             ORDER BY x.base_offset DESC
            OFFSET 0) AS t
     CROSS JOIN LATERAL queen.log_message_index(t.hashes, hash) AS u (idx)
     WHERE u.idx IS NOT NULL
     LIMIT 1;
    IF place.partition_id IS NULL AND partition.txns_start > partition.log_start THEN
        SELECT partition.id, s.base_offset, s.base_offset + u.idx, s.created_at INTO place
          FROM (SELECT n.base_offset, n.created_at,
                       CASE WHEN queen.log_segment_error(
                                     n.blob, (n.end_offset - n.base_offset + 1)::int) IS NULL
                            THEN queen.log_segment_hashes(n.blob) END AS hashes
                  FROM (SELECT g.base_offset, g.end_offset, g.created_at, g.blob,
                               sum(length(g.blob)) OVER (ORDER BY g.base_offset DESC) AS bytes
                          FROM (SELECT b.*
                                  FROM queen.log_segments AS b
                                 WHERE b.partition_id = partition.id
                                   AND b.base_offset < partition.txns_start
                                 ORDER BY b.base_offset DESC
                                 LIMIT 5000) AS g) AS n
                 WHERE n.bytes <= 67108864
                 ORDER BY n.base_offset DESC) AS s
         CROSS JOIN LATERAL queen.log_message_index(s.hashes, hash) AS u (idx)
         WHERE u.idx IS NOT NULL
         LIMIT 1;
    END IF;
    RETURN place;
END
$$;
COMMENT ON FUNCTION queen.log_find_message(queen.log_partitions, text) IS
    'The newest message of a partition with this transaction id; NULLs when there is none. Where the sidecar is purged it looks at the newest 5000 segments, and at 64 MiB of them';

CREATE FUNCTION queen.log_message(tenant uuid, partition_id uuid, transaction_id text)
RETURNS TABLE (meta jsonb, flags int, payload bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    part   queen.log_partitions;
    q      queen.queues;
    place  queen.message_place;
    letter queen.log_dlq;
    spot   bigint;                      -- its offset
    frame  record;
    state  record;
BEGIN
    SELECT p.* INTO part FROM queen.log_partitions AS p
     WHERE p.id = log_message.partition_id AND queen.log_tenant(p.id) = tenant;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT r.* INTO q FROM queen.queues AS r WHERE r.id = part.queue_id;
    place := queen.log_find_message(part, log_message.transaction_id);
    SELECT d.* INTO letter
      FROM queen.log_dlq AS d
     WHERE d.partition_id = part.id AND d.transaction_id = log_message.transaction_id
       AND (place.message_offset IS NULL OR d."offset" = place.message_offset)
     ORDER BY d.failed_at DESC
     LIMIT 1;
    IF place.partition_id IS NULL AND letter.id IS NULL THEN
        RETURN;
    END IF;
    -- A dead letter outlives its message.
    SELECT f.flags, f.message_id, f.trace_id, f.producer_sub, f.payload INTO frame
      FROM queen.log_segments AS s
     CROSS JOIN LATERAL queen.log_frames(s.blob, (place.message_offset - s.base_offset)::int,
                                         (place.message_offset - s.base_offset)::int) AS f
     WHERE s.partition_id = part.id AND s.base_offset = place.base_offset;
    IF NOT FOUND AND letter.id IS NULL THEN
        RETURN;
    ELSIF NOT FOUND THEN
        SELECT letter.flags::int, letter.message_id, NULL::uuid AS trace_id, letter.producer_sub,
               letter.payload INTO frame;
    END IF;
    spot := coalesce(place.message_offset, letter."offset");
    SELECT * INTO state FROM queen.log_message_states(part.id, spot, spot);

    RETURN QUERY
    SELECT jsonb_build_object(
               'id', frame.message_id, 'transactionId', log_message.transaction_id,
               'traceId', frame.trace_id, 'producerSub', frame.producer_sub,
               'createdAt', queen.wire_time(coalesce(place.created_at, letter.failed_at)),
               'partitionId', part.id, 'partition', part.name, 'queue', q.name,
               'queuePath', q.name || '/' || part.name, 'namespace', q.namespace, 'task', q.task,
               'status', state.status, 'errorMessage', letter.error,
               'retryCount', coalesce(letter.retry_count, 0),
               'leaseExpiresAt', queen.wire_time(state.lease_expires_at),
               'queueConfig', jsonb_build_object(
                   'leaseTime', q.lease_time, 'retryLimit', q.retry_limit,
                   'retryDelay', q.retry_delay, 'ttl', q.ttl, 'priority', q.priority),
               'mode', queen.log_message_mode(ARRAY[part.id]),
               'consumerGroups', (
                   SELECT coalesce(jsonb_agg(jsonb_build_object(
                              'name', c.consumer_group, 'group', c.consumer_group,
                              'consumed', c.committed >= spot,
                              'leaseExpiresAt', CASE
                                  WHEN c.committed < spot AND c.batch_end >= spot
                                   AND c.lease_expires_at >= clock_timestamp()
                                      THEN queen.wire_time(c.lease_expires_at) END)
                              ORDER BY c.consumer_group COLLATE "C"), '[]')
                     FROM queen.log_consumers AS c
                    WHERE c.partition_id = part.id)),
           frame.flags, frame.payload;
END
$$;
COMMENT ON FUNCTION queen.log_message(uuid, uuid, text) IS
    'The newest message of a partition with this transaction id, or its dead letter when the message is gone; no row when there is neither. meta is the message as GET /messages/:partitionId/:transactionId shows it, without its payload; payload are the bytes of the frame (flag 4: an encryption envelope)';
