-- The API for applications: role queen_app, default tenant, the caller's own transaction.
--
-- It is a face of the procedures that the front end calls, so both see the same log, and the same
-- rules hold. What a procedure answers per entry becomes an error here wherever a caller that does
-- not look at the answer would go wrong.

CREATE FUNCTION queen.api_tenant() RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT '00000000-0000-0000-0000-000000000001'::uuid;
END;
COMMENT ON FUNCTION queen.api_tenant() IS
    'The tenant that the API works for';

CREATE FUNCTION queen.api_check(valid boolean, message text) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF valid IS NOT TRUE THEN
        RAISE EXCEPTION '%', message USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;
COMMENT ON FUNCTION queen.api_check(boolean, text) IS
    'Raises 22023 with the message unless valid is true';

CREATE FUNCTION queen.api_queue(queue text) RETURNS queen.queues
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found_queue queen.queues;
BEGIN
    SELECT * INTO found_queue
      FROM queen.queues AS q
     WHERE q.tenant_id = queen.api_tenant() AND q.name = queue AND q.deleted_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'queue "%" does not exist', queue USING ERRCODE = 'no_data_found';
    END IF;
    RETURN found_queue;
END
$$;
COMMENT ON FUNCTION queen.api_queue(text) IS
    'The queue of that name; raises P0002 when there is none';

CREATE FUNCTION queen.api_refuse_encrypted(queue text) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM FROM queen.queues AS q
      WHERE q.tenant_id = queen.api_tenant() AND q.name = queue AND q.deleted_at IS NULL
        AND q.encryption_enabled;
    IF FOUND THEN
        RAISE EXCEPTION 'queue "%" is encrypted, and the database has no key', queue
            USING ERRCODE = 'feature_not_supported', HINT = 'Use the front end.';
    END IF;
END
$$;
COMMENT ON FUNCTION queen.api_refuse_encrypted(text) IS
    'Raises 0A000 when the queue of that name is encrypted';

CREATE TYPE queen.pushed AS (
    item           int,
    message_id     uuid,
    transaction_id text,
    status         text
);
COMMENT ON TYPE queen.pushed IS 'What became of one pushed message';
COMMENT ON COLUMN queen.pushed.item IS 'Which message of the call, counted from 1';
COMMENT ON COLUMN queen.pushed.message_id IS 'Id of the message; of a duplicate, that of the original, or the nil UUID when it can no longer be read';
COMMENT ON COLUMN queen.pushed.transaction_id IS 'The given one, else the text of message_id';
COMMENT ON COLUMN queen.pushed.status IS 'queued: stored when the transaction commits. duplicate: nothing stored, the partition has a message with that transaction id, not older than the queue''s dedupWindowSeconds, or the call has one before it';

CREATE TYPE queen.message AS (
    message_id     uuid,
    transaction_id text,
    payload        jsonb,
    payload_text   text,
    partition      text,
    partition_id   uuid,
    lease_id       uuid,
    consumer_group text,
    message_offset bigint,
    attempt        int,
    created_at     timestamptz,
    trace_id       uuid,
    producer_sub   text
);
COMMENT ON TYPE queen.message IS 'One message as queen.pop returns it';
COMMENT ON COLUMN queen.message.message_id IS 'Id of the message';
COMMENT ON COLUMN queen.message.transaction_id IS 'What the producer named it; by this it is acknowledged';
COMMENT ON COLUMN queen.message.payload IS 'The payload; NULL when jsonb cannot hold it';
COMMENT ON COLUMN queen.message.payload_text IS 'Text of a payload that jsonb cannot hold (\u0000, a number out of range), else NULL';
COMMENT ON COLUMN queen.message.partition IS 'Name of its partition';
COMMENT ON COLUMN queen.message.partition_id IS 'Id of its partition, for the acknowledgement';
COMMENT ON COLUMN queen.message.lease_id IS 'Id of the lease, for the acknowledgement; NULL after a pop with auto_ack';
COMMENT ON COLUMN queen.message.consumer_group IS 'Group that it was popped for; __QUEUE_MODE__ when none was named';
COMMENT ON COLUMN queen.message.message_offset IS 'Its place in the partition; ascends, with gaps where messages were deleted';
COMMENT ON COLUMN queen.message.attempt IS 'How many times in a row the batch that starts with the same message was delivered';
COMMENT ON COLUMN queen.message.created_at IS 'When it was pushed: before that transaction committed, ascending within the partition';
COMMENT ON COLUMN queen.message.trace_id IS 'Trace id given by the producer, or NULL';
COMMENT ON COLUMN queen.message.producer_sub IS 'Subject of the token that pushed it over HTTP, or NULL';

CREATE TYPE queen.group_lag AS (
    consumer_group text,
    partitions     bigint,
    lag            bigint,
    leased         bigint
);
COMMENT ON TYPE queen.group_lag IS 'Where a consumer group stands in a queue';
COMMENT ON COLUMN queen.group_lag.consumer_group IS 'Name of the group; __QUEUE_MODE__ for consumers that name none';
COMMENT ON COLUMN queen.group_lag.partitions IS 'Partitions that the group reads';
COMMENT ON COLUMN queen.group_lag.lag IS 'Messages that it has yet to complete, the leased ones included';
COMMENT ON COLUMN queen.group_lag.leased IS 'Messages under a live lease';

CREATE TYPE queen.dead_letter AS (
    id             uuid,
    transaction_id text,
    payload_text   text,
    partition      text,
    consumer_group text,
    error          text,
    retry_count    int,
    failed_at      timestamptz
);
COMMENT ON TYPE queen.dead_letter IS 'One dead letter as queen.dead_letters returns it';
COMMENT ON COLUMN queen.dead_letter.id IS 'Id of the dead letter';
COMMENT ON COLUMN queen.dead_letter.transaction_id IS 'Transaction id of the message; NULL for a corrupt segment';
COMMENT ON COLUMN queen.dead_letter.payload_text IS 'Its payload as text; NULL when it could not be read';
COMMENT ON COLUMN queen.dead_letter.partition IS 'Name of its partition';
COMMENT ON COLUMN queen.dead_letter.consumer_group IS 'Group that gave it up';
COMMENT ON COLUMN queen.dead_letter.error IS 'Why, as queen.nack was told';
COMMENT ON COLUMN queen.dead_letter.retry_count IS 'Failed attempts before';
COMMENT ON COLUMN queen.dead_letter.failed_at IS 'When it was filed';

-- Push. Partitions are created before the first of them is locked, since a call waits for rows in
-- one order only. Of each partition one segment is sent at a time: the messages behind a segment
-- that held a duplicate must not overtake what is left of it.

CREATE FUNCTION queen.api_provision(queue text, partitions text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    strange text[] := ARRAY(
        SELECT w.name
          FROM (SELECT DISTINCT n COLLATE "C" AS name FROM unnest(partitions) AS n) AS w
         WHERE NOT EXISTS (SELECT
                             FROM queen.queues AS q
                             JOIN queen.log_partitions AS p ON p.queue_id = q.id
                            WHERE q.tenant_id = queen.api_tenant()
                              AND q.name = api_provision.queue AND q.deleted_at IS NULL
                              AND p.name = w.name));
BEGIN
    IF cardinality(strange) > 0 THEN
        PERFORM queen.log_provision(array_fill(queen.api_tenant(), ARRAY[cardinality(strange)]),
                                    array_fill(queue, ARRAY[cardinality(strange)]), strange);
    END IF;
END
$$;
COMMENT ON FUNCTION queen.api_provision(text, text[]) IS
    'Creates the queue and those of the partitions that do not exist';

CREATE FUNCTION queen.api_push_segments(queue text, payloads jsonb[], partitions text[],
                                        transaction_ids text[], message_ids uuid[], todo int[])
RETURNS TABLE (items int[], status text, duplicate_frames int[], duplicate_ids uuid[], error text)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    WITH first AS (
        SELECT f.*
          FROM (SELECT t.item, partitions[t.item] AS partition,
                       row_number() OVER (PARTITION BY partitions[t.item] COLLATE "C"
                                              ORDER BY t.item) AS place
                  FROM unnest(todo) AS t (item)) AS f
         WHERE f.place <= 10000
    ), segment AS MATERIALIZED (
        SELECT row_number() OVER () AS entry, g.partition, g.members[:k.frames] AS members, k.*
          FROM (SELECT f.partition, array_agg(f.item ORDER BY f.item) AS members,
                       array_agg(message_ids[f.item] ORDER BY f.item) AS ids,
                       array_agg(transaction_ids[f.item] ORDER BY f.item) AS names,
                       array_agg(payloads[f.item] ORDER BY f.item) AS contents
                  FROM first AS f
                 GROUP BY f.partition) AS g
         CROSS JOIN LATERAL queen.log_pack(g.ids, g.names, g.contents) AS k
    ), bundle AS (
        SELECT array_agg(queen.api_tenant()) AS tenants,
               array_agg(api_push_segments.queue) AS queues,
               array_agg(s.partition ORDER BY s.entry) AS names,
               array_agg(s.frames ORDER BY s.entry) AS counts,
               array_agg(s.hashes ORDER BY s.entry) AS hashes,
               array_agg(s.blob ORDER BY s.entry) AS blobs
          FROM segment AS s
    )
    SELECT s.members, v.status, v.duplicate_frames, v.duplicate_ids, v.error
      FROM bundle AS b
     CROSS JOIN LATERAL queen.log_push(b.tenants, b.queues, b.names, b.counts, b.hashes, b.blobs,
                                       true) AS v
      JOIN segment AS s ON s.entry = v.entry;
END
$$;
COMMENT ON FUNCTION queen.api_push_segments(text, jsonb[], text[], text[], uuid[], int[]) IS
    'Packs the first segment of each partition of the items todo and pushes them in one call; one row per segment with its items in frame order';

-- With the arrays in its plan an element of one would cost as much as all that stand before it.
CREATE FUNCTION queen.push_many(queue text, payloads jsonb[], partitions text[] DEFAULT NULL,
                                transaction_ids text[] DEFAULT NULL)
RETURNS SETOF queen.pushed
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    n           CONSTANT int := cardinality(payloads);
    message_ids uuid[];
    statuses    text[];             -- per item, NULL: not decided yet
    leaders     int[];              -- per item: the first with its transaction id
    todo        int[];
    segment     record;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.api_check(queen.log_valid_name(queue), 'queue is missing or not a valid name');
    PERFORM queen.api_check(n = 0 OR array_ndims(payloads) = 1,
                            'payloads must be an array of one dimension');
    PERFORM queen.api_check(array_position(payloads, NULL) IS NULL, 'payload is missing');
    PERFORM queen.api_check(coalesce(cardinality(partitions), n) = n
                                AND coalesce(cardinality(transaction_ids), n) = n,
                            'partitions and transaction_ids must be as long as payloads');
    IF n = 0 THEN
        RETURN;
    END IF;

    statuses := array_fill(NULL::text, ARRAY[n]);
    payloads := payloads[:];        -- counted from 1
    partitions := partitions[:];
    transaction_ids := transaction_ids[:];
    SELECT array_agg(m.id ORDER BY m.item),
           array_agg(coalesce(partitions[m.item], 'Default') ORDER BY m.item),
           array_agg(coalesce(transaction_ids[m.item], m.id::text) ORDER BY m.item)
      INTO message_ids, partitions, transaction_ids
      FROM (SELECT i AS item, queen.log_message_id() AS id
              FROM generate_series(1, n) AS i) AS m;
    PERFORM queen.api_check(bool_and(p <> '' AND queen.log_valid_name(p)),
                            'partition is not a valid name')
       FROM unnest(partitions) AS p;
    SELECT array_agg(l.leader ORDER BY l.item),
           array_agg(l.item ORDER BY l.item) FILTER (WHERE l.item = l.leader)
      INTO leaders, todo
      FROM (SELECT e.item::int, min(e.item::int) OVER (
                                    PARTITION BY e.partition COLLATE "C", e.name COLLATE "C")
                                    AS leader
              FROM unnest(partitions, transaction_ids) WITH ORDINALITY
                   AS e (partition, name, item)) AS l;

    WHILE cardinality(todo) > 0 LOOP
        PERFORM queen.api_provision(queue, partitions);
        FOR segment IN
            SELECT * FROM queen.api_push_segments(queue, payloads, partitions, transaction_ids,
                                                  message_ids, todo)
        LOOP
            CASE segment.status
                WHEN 'queued' THEN
                    FOR i IN 1 .. cardinality(segment.items) LOOP
                        statuses[segment.items[i]] := 'queued';
                    END LOOP;
                WHEN 'duplicate' THEN
                    FOR i IN 1 .. cardinality(segment.duplicate_frames) LOOP
                        statuses[segment.items[segment.duplicate_frames[i] + 1]] := 'duplicate';
                        message_ids[segment.items[segment.duplicate_frames[i] + 1]] :=
                            segment.duplicate_ids[i];
                    END LOOP;
                WHEN 'clear' THEN
                    PERFORM queen.api_refuse_encrypted(queue);
                WHEN 'missing' THEN
                    NULL;           -- deleted since it was created: once more
                ELSE
                    PERFORM queen.api_check(false, segment.error);
            END CASE;
        END LOOP;
        todo := ARRAY(SELECT t FROM unnest(todo) WITH ORDINALITY AS o (t, place)
                       WHERE statuses[t] IS NULL ORDER BY place);
    END LOOP;

    RETURN QUERY
    SELECT i, message_ids[leaders[i]], transaction_ids[i],
           CASE WHEN leaders[i] = i THEN statuses[i] ELSE 'duplicate' END
      FROM generate_series(1, n) AS i;
END
$$;
COMMENT ON FUNCTION queen.push_many(text, jsonb[], text[], text[]) IS
    'Pushes messages to a queue, which is created when it does not exist; one row per message, in order. partitions: per message, created as well (NULL: Default). transaction_ids: per message, 1 to 65,535 bytes (NULL: the message id); repeated within the queue''s dedupWindowSeconds in the same partition it is a duplicate. Messages of one partition keep their order. The partitions stay locked until the transaction ends. Raises 22023 for a bad name, a NULL payload, arrays of unequal length, a payload longer than 64 MiB or nested deeper than 512 levels; 0A000 for an encrypted queue, and outside READ COMMITTED; 55P03 after lock_timeout; 40P01 when transactions that hold several partitions meet (repeat the transaction)';

CREATE FUNCTION queen.push(queue text, payload jsonb, partition text DEFAULT 'Default',
                           transaction_id text DEFAULT NULL)
RETURNS queen.pushed
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    RETURN (SELECT p FROM queen.push_many(queue, ARRAY[payload], ARRAY[partition],
                                          ARRAY[transaction_id]) AS p);
END
$$;
COMMENT ON FUNCTION queen.push(text, jsonb, text, text) IS
    'Pushes one message; see queen.push_many. partition: default Default. transaction_id: default the message id';

-- Pop. A corrupt segment is set aside as the front end does it; what follows a range that could
-- not be skipped is left to a later pop.
CREATE FUNCTION queen.pop(queue text, consumer_group text DEFAULT NULL,
                          partition text DEFAULT NULL, batch int DEFAULT 1,
                          lease_seconds int DEFAULT NULL, partitions int DEFAULT 1,
                          auto_ack boolean DEFAULT false, subscription_mode text DEFAULT 'new',
                          subscription_from timestamptz DEFAULT NULL)
RETURNS SETOF queen.message
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    lease     CONSTANT uuid := CASE WHEN auto_ack THEN NULL ELSE gen_random_uuid() END;
    slice     record;
    verdict   text;
    left_out  uuid;                 -- a partition of which nothing more is delivered
    delivered boolean := false;
    again     boolean;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.api_refuse_encrypted(queue);
    consumer_group := coalesce(consumer_group, '__QUEUE_MODE__');
    LOOP
        again := false;
        FOR slice IN
            SELECT * FROM queen.log_pop(
                ARRAY[queen.api_tenant()], ARRAY[queue], ARRAY[partition], ARRAY[consumer_group],
                ARRAY[lease], ARRAY[batch], ARRAY[partitions], ARRAY[lease_seconds],
                ARRAY[auto_ack], ARRAY[false], ARRAY[subscription_mode], ARRAY[subscription_from])
        LOOP
            PERFORM queen.api_check(slice.status <> 'invalid', slice.error);
            IF slice.status = 'missing' THEN
                PERFORM queen.log_provision(ARRAY[queen.api_tenant()], ARRAY[queue],
                                            ARRAY[NULL::text]);
                again := true;
            ELSIF slice.status = 'empty' AND slice.queue_id IS NULL THEN
                PERFORM queen.api_queue(queue);
            ELSIF slice.status = 'segment' AND slice.partition_id IS DISTINCT FROM left_out THEN
                RETURN QUERY
                SELECT m.message_id, m.transaction_id, m.payload, m.payload_text, slice.partition,
                       slice.partition_id, lease, consumer_group, slice.base_offset + m.frame,
                       slice.attempt, slice.created_at, m.trace_id, m.producer_sub
                  FROM queen.log_unpack(slice.blob,
                                        (slice.end_offset - slice.base_offset + 1)::int,
                                        (slice.first_offset - slice.base_offset)::int,
                                        (slice.last_offset - slice.base_offset)::int) AS m;
                delivered := delivered OR FOUND;
                IF NOT FOUND THEN
                    SELECT k.status INTO verdict
                      FROM queen.log_quarantine(queen.api_tenant(), slice.partition_id,
                                                consumer_group, lease, slice.base_offset) AS k;
                    again := again OR verdict IN ('skipped', 'filed');
                    left_out := CASE WHEN NOT auto_ack AND verdict <> 'skipped'
                                     THEN slice.partition_id END;
                END IF;
            END IF;
        END LOOP;
        EXIT WHEN delivered OR NOT again;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.pop(text, text, text, int, int, int, boolean, text, timestamptz) IS
    'Pops up to batch messages (default 1, at most 10,000) for a consumer group (default: the queue''s consumers without a group) and leases them; no row when there is nothing, and it never waits. partition: only this one. lease_seconds: default the queue''s leaseTime, at most 86,400. partitions: how many may be claimed, 0 for any number. auto_ack: no lease, the messages are done when the transaction commits. subscription_mode (new or all; default new) and subscription_from (a time, which beats it) say where a group starts when it pops for the first time; without a group the start is the oldest message. Messages of a partition ascend. A rollback gives everything back. Creates a missing queue unless partition is given: then P0002. Raises 22023 for bad arguments; 0A000 for an encrypted queue, and outside READ COMMITTED';

-- A refusal is an error: whoever does not look must not commit work that another worker repeats.
CREATE FUNCTION queen.api_ack(partition_id uuid, transaction_id text, lease_id uuid,
                              consumer_group text, status text, reason text,
                              OUT lease_released boolean, OUT dlq boolean)
LANGUAGE plpgsql AS $$
DECLARE
    refusal text;
BEGIN
    SELECT a.error, a.lease_released, a.dlq INTO refusal, lease_released, dlq
      FROM queen.log_ack(ARRAY[queen.api_tenant()], ARRAY[partition_id],
                         ARRAY[coalesce(consumer_group, '__QUEUE_MODE__')], ARRAY[lease_id],
                         ARRAY[1], ARRAY[status], ARRAY[reason], ARRAY[1], ARRAY[transaction_id],
                         true) AS a;
    IF refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', refusal
            USING ERRCODE = CASE
                WHEN refusal IN ('consumer not found', 'unresolved transaction id')
                    THEN 'no_data_found'
                WHEN refusal IN ('invalid or expired lease', 'no active lease',
                                 'already committed')
                    THEN 'object_not_in_prerequisite_state'
                ELSE 'invalid_parameter_value' END;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.api_ack(uuid, text, uuid, text, text, text) IS
    'One acknowledgement of one message. Raises P0002, 55000 or 22023 when it is refused';

CREATE FUNCTION queen.ack(partition_id uuid, transaction_id text, lease_id uuid,
                          consumer_group text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    RETURN (SELECT a.lease_released
              FROM queen.api_ack(partition_id, transaction_id, lease_id, consumer_group,
                                 'completed', NULL) AS a);
END
$$;
COMMENT ON FUNCTION queen.ack(uuid, text, uuid, text) IS
    'Completes a message, and with it everything before it in its partition; true when the batch is done and its lease over. The arguments are columns of what queen.pop returned; lease_id NULL: the lease is not checked. Completing again is no error. Raises 55000 when the lease is over or another''s, P0002 for an unknown partition, group or transaction id, 22023 for a missing argument, 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.nack(partition_id uuid, transaction_id text, lease_id uuid,
                           consumer_group text DEFAULT NULL, error text DEFAULT NULL,
                           status text DEFAULT 'failed')
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    PERFORM queen.api_check(status IN ('failed', 'retry', 'dlq'),
                            'status must be failed, retry or dlq');
    RETURN (SELECT a.dlq
              FROM queen.api_ack(partition_id, transaction_id, lease_id, consumer_group, status,
                                 error) AS a);
END
$$;
COMMENT ON FUNCTION queen.nack(uuid, text, uuid, text, text, text) IS
    'Gives a message back, with everything behind it in the batch; true when it became a dead letter. status failed (default): it is delivered again until the queue''s retryLimit is used up, then it is a dead letter; retry: again, at no charge; dlq: a dead letter now. error: text for the dead letter. What stands before it in the batch is not completed: acknowledge that first. Raises what queen.ack raises, and 55000 also for a message that is not leased or is completed already';

CREATE FUNCTION queen.renew(lease_id uuid, seconds int DEFAULT 60) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
DECLARE
    lease record;
BEGIN
    SELECT r.* INTO lease FROM queen.log_renew(queen.api_tenant(), lease_id, seconds, NULL) AS r;
    IF lease.renewed = 0 THEN
        RAISE EXCEPTION 'invalid or expired lease'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN lease.expires_at;
END
$$;
COMMENT ON FUNCTION queen.renew(uuid, int) IS
    'Extends a lease, in all of its partitions, to at least the given seconds from now (default 60, 1 to 86,400) and returns its end; never shortens it. Others see that only after the commit. Raises 55000 when the lease is over or unknown, 22023 for other seconds, 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.seek(queue text, consumer_group text, target timestamptz,
                           partition text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
DECLARE
    step   record;
    resume text;
    moved  bigint := 0;
BEGIN
    LOOP
        SELECT k.* INTO step
          FROM queen.log_seek(queen.api_tenant(), coalesce(consumer_group, '__QUEUE_MODE__'), queue,
                              partition, target, resume, 1000) AS k;
        IF step.queue_id IS NULL THEN
            PERFORM queen.api_queue(queue);
        END IF;
        moved := moved + step.moved;
        resume := step.next;
        EXIT WHEN resume IS NULL;
    END LOOP;
    RETURN moved;
END
$$;
COMMENT ON FUNCTION queen.seek(text, text, timestamptz, text) IS
    'Moves a consumer group (NULL: the consumers without a group) in a queue, forwards or back, and ends its leases: the next message is the first that was pushed at or after target. -infinity: the oldest; infinity: what is pushed from now on. partition: only in this one. Returns the number of partitions, which stay locked against the group until the transaction ends. Raises P0002 when the queue does not exist, 22023 for a bad name or no target, 0A000 outside READ COMMITTED, 40P01 when transactions that hold several partitions meet (repeat the transaction)';

CREATE FUNCTION queen.configure(queue text, options jsonb DEFAULT '{}',
                                namespace text DEFAULT NULL, task text DEFAULT NULL,
                                mode text DEFAULT 'merge')
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    IF options -> 'encryptionEnabled' = 'true' THEN
        RAISE EXCEPTION 'cannot encrypt a queue here: the database has no key'
            USING ERRCODE = 'feature_not_supported', HINT = 'Use the front end.';
    END IF;
    RETURN queen.log_configure(queen.api_tenant(), queue, namespace, task, options, mode)
               -> 'options';
END
$$;
COMMENT ON FUNCTION queen.configure(text, jsonb, text, text, text) IS
    'Creates a queue or changes it, and returns all of its options. options: an object with the names of POST /api/v1/configure; an absent one keeps its value, a JSON null resets it. mode replace: absent ones are reset too. namespace, task: labels, NULL keeps them. Raises 22023 for a bad option, with its name in the COLUMN field of the error; 0A000 for encryptionEnabled, and outside READ COMMITTED';

CREATE FUNCTION queen.delete_queue(queue text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    RETURN queen.log_delete_queue(queen.api_tenant(), queue);
END
$$;
COMMENT ON FUNCTION queen.delete_queue(text) IS
    'Deletes a queue with its messages, groups and dead letters; true when it existed. Its name is free when this commits. Raises 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.lag(queue text, consumer_group text DEFAULT NULL)
RETURNS SETOF queen.group_lag
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    wanted CONSTANT uuid := (queen.api_queue(queue)).id;
BEGIN
    RETURN QUERY
    SELECT s.consumer_group, count(*), sum(s.lag)::bigint, coalesce(sum(s.leased), 0)::bigint
      FROM queen.log_partitions AS p
     CROSS JOIN LATERAL queen.partition_places(p) AS s
     WHERE p.queue_id = wanted
       AND (consumer_group IS NULL OR s.consumer_group = consumer_group)
     GROUP BY s.consumer_group
     ORDER BY s.consumer_group COLLATE "C";
END
$$;
COMMENT ON FUNCTION queen.lag(text, text) IS
    'How many messages the consumer groups of a queue have yet to complete; one row per group, or for the named one (no row: it has never popped). Computed from offsets, messages are not counted. Raises P0002 when the queue does not exist';

CREATE FUNCTION queen.dead_letters(queue text, consumer_group text DEFAULT NULL,
                                   max_rows int DEFAULT 100, skip int DEFAULT 0)
RETURNS SETOF queen.dead_letter
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
BEGIN
    PERFORM queen.api_queue(queue);
    RETURN QUERY
    SELECT d.id, d.transaction_id, convert_from(d.payload, 'UTF8'), d.partition, d.consumer_group,
           d.error, d.retry_count, d.failed_at
      FROM queen.log_dlq(queen.api_tenant(), queue, NULL, consumer_group, NULL, NULL, max_rows,
                         skip) AS d;
END
$$;
COMMENT ON FUNCTION queen.dead_letters(text, text, int, int) IS
    'Dead letters of a queue, newest first: at most max_rows (default 100) after the first skip (default 0). consumer_group: only those of this group. Raises P0002 when the queue does not exist, 22023 for negative numbers';
