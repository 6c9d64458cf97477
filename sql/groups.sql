-- Consumer groups: what there is, where they start, and their end.
--
-- The listings compute lags from offsets. Where they show an age they probe the primary key of
-- log_segments, once per partition that lags.
--
-- Locks of the deletion: the subscription of the group to one queue (advisory, so that no first
-- contact goes by what is being deleted), its rows, then partitions ascending by id and cursors.

CREATE FUNCTION queen.group_places(tenant uuid)
RETURNS TABLE (consumer_group text, queue_id uuid, queue text, partition_id uuid, lag bigint,
               consumed bigint, leased boolean, since timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT c.consumer_group, q.id, q.name, p.id, c.lag, c.consumed, c.leased IS NOT NULL,
           (SELECT h.created_at FROM queen.log_head(p.id, c.passed + 1) AS h WHERE c.lag > 0)
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
     CROSS JOIN LATERAL queen.partition_places(p) AS c
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL;
END;
COMMENT ON FUNCTION queen.group_places(uuid) IS
    'Where each consumer group of a tenant stands in each partition: messages behind its cursor, messages that it has passed, whether a live lease is out, and when the oldest message behind the cursor was pushed. A group that subscribed to a queue has a place in partitions that it has not met';

CREATE FUNCTION queen.lag_seconds(since timestamptz) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(greatest(floor(extract(epoch FROM pg_catalog.clock_timestamp() - since)), 0),
                    0)::bigint;
END;
COMMENT ON FUNCTION queen.lag_seconds(timestamptz) IS
    'Age of the oldest message behind a cursor in whole seconds; 0 when there is none (NULL)';

CREATE FUNCTION queen.log_groups(tenant uuid) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'name', g.consumer_group, 'topics', jsonb_build_array(g.queue),
               'queueName', g.queue, 'members', g.cursors, 'partitionCursors', g.cursors,
               'partitionsWithLag', g.lagging, 'totalLag', g.lag, 'maxTimeLag', g.age,
               'state', CASE WHEN g.age > 300 THEN 'Lagging'
                             WHEN g.consumed > 0 OR g.leased THEN 'Stable' ELSE 'Dead' END,
               'storage', 'segments', 'subscriptionMode', m.subscription_mode,
               'subscriptionTimestamp', queen.wire_time(m.subscription_timestamp),
               'subscriptionCreatedAt', queen.wire_time(m.created_at), 'conflation', false)
               ORDER BY g.consumer_group COLLATE "C", g.queue COLLATE "C"), '[]')
      FROM (SELECT coalesce(l.consumer_group, s.consumer_group) AS consumer_group,
                   coalesce(l.queue_id, s.queue_id) AS queue_id,
                   coalesce(l.queue, s.queue) AS queue, coalesce(l.cursors, 0) AS cursors,
                   coalesce(l.lagging, 0) AS lagging, coalesce(l.lag, 0) AS lag,
                   coalesce(l.consumed, 0) AS consumed, coalesce(l.leased, false) AS leased,
                   queen.lag_seconds(l.since) AS age
              FROM (SELECT p.consumer_group, p.queue_id, p.queue, count(*) AS cursors,
                           count(*) FILTER (WHERE p.lag > 0) AS lagging, sum(p.lag) AS lag,
                           sum(p.consumed) AS consumed, bool_or(p.leased) AS leased,
                           min(p.since) AS since
                      FROM queen.group_places(tenant) AS p
                     GROUP BY p.consumer_group, p.queue_id, p.queue) AS l
              FULL JOIN (SELECT m.consumer_group, q.id AS queue_id, q.name AS queue
                           FROM queen.queues AS q
                           JOIN queen.consumer_groups_metadata AS m ON m.queue_id = q.id
                          WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
                            AND m.partition_name = '') AS s
                ON s.queue_id = l.queue_id AND s.consumer_group = l.consumer_group) AS g
      LEFT JOIN queen.consumer_groups_metadata AS m
        ON m.queue_id = g.queue_id AND m.consumer_group = g.consumer_group
       AND m.partition_name = '';
$$;
COMMENT ON FUNCTION queen.log_groups(uuid) IS
    'Every consumer group of a tenant on every queue that it reads: the answer of GET /consumer-groups. Lags in messages and seconds; members is the number of partitions. A few index probes per partition and group';

CREATE FUNCTION queen.log_group(tenant uuid, consumer_group text) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT coalesce(jsonb_object_agg(g.queue, jsonb_build_object(
                        'conflation', false, 'partitions', g.partitions)), '{}')
      FROM (SELECT l.queue, jsonb_agg(jsonb_build_object(
                       'partition', p.name, 'workerId', c.worker_id, 'lastConsumedAt', NULL,
                       'totalConsumed', l.consumed, 'offsetLag', l.lag,
                       'timeLagSeconds', queen.lag_seconds(l.since), 'leaseActive', l.leased)
                       ORDER BY p.name COLLATE "C") AS partitions
              FROM queen.group_places(tenant) AS l
              JOIN queen.log_partitions AS p ON p.id = l.partition_id
              LEFT JOIN queen.log_consumers AS c
                ON c.partition_id = l.partition_id AND c.consumer_group = l.consumer_group
             WHERE l.consumer_group = log_group.consumer_group
             GROUP BY l.queue) AS g;
$$;
COMMENT ON FUNCTION queen.log_group(uuid, text) IS
    'One consumer group, by queue and partition: the answer of GET /consumer-groups/:group; an empty object when there is none. A few index probes per partition of the tenant';

CREATE FUNCTION queen.log_lagging(tenant uuid, min_seconds int) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object(
               'consumer_group', g.consumer_group, 'queue_name', g.queue,
               'partition_name', p.name, 'partition_id', p.id, 'worker_id', c.worker_id,
               'offset_lag', g.lag, 'time_lag_seconds', queen.lag_seconds(g.since),
               'lag_hours', round(queen.lag_seconds(g.since) / 3600.0, 2),
               'oldest_unconsumed_at', queen.wire_time(g.since), 'last_consumed_at', NULL)
               ORDER BY g.since, g.consumer_group COLLATE "C", p.id), '[]')
      FROM (SELECT *
              FROM (SELECT * FROM queen.group_places(tenant) OFFSET 0) AS l
             WHERE l.since <= clock_timestamp() - make_interval(secs => min_seconds)
             ORDER BY l.since
             LIMIT 10000) AS g
      JOIN queen.log_partitions AS p ON p.id = g.partition_id
      LEFT JOIN queen.log_consumers AS c
        ON c.partition_id = g.partition_id AND c.consumer_group = g.consumer_group;
$$;
COMMENT ON FUNCTION queen.log_lagging(uuid, int) IS
    'Partitions where a consumer group of the tenant has left a message lying for at least min_seconds, the oldest 10,000 of them: the answer of GET /consumer-groups/lagging';

CREATE FUNCTION queen.log_move_subscription(tenant uuid, consumer_group text, start_at timestamptz)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    n       int;
BEGIN
    PERFORM queen.log_guard();
    IF start_at IS NULL THEN
        RAISE EXCEPTION 'a subscription needs a start' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM queen.consumer_groups_metadata m
      WHERE m.tenant_id = tenant AND m.consumer_group = consumer_group
      ORDER BY m.queue_id, m.partition_name, m.namespace, m.task
        FOR NO KEY UPDATE;
    UPDATE queen.consumer_groups_metadata m
       SET subscription_mode = 'timestamp', subscription_timestamp = start_at
     WHERE m.tenant_id = tenant AND m.consumer_group = consumer_group;
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM queen.consumer_watermarks w
     USING queen.queues q
     WHERE q.tenant_id = tenant AND w.queue_id = q.id AND w.consumer_group = consumer_group;
    PERFORM queen.stat_doubt(m.queue_id)
       FROM queen.consumer_groups_metadata m
      WHERE m.tenant_id = tenant AND m.consumer_group = consumer_group;
    RETURN jsonb_build_object('success', true, 'consumerGroup', consumer_group,
                              'newTimestamp', queen.wire_time(start_at), 'rowsUpdated', n);
END
$$;
COMMENT ON FUNCTION queen.log_move_subscription(uuid, text, timestamptz) IS
    'Changes where a consumer group starts on partitions that it has not met and that are younger than its subscription, in all its subscriptions, and returns the answer of POST /consumer-groups/:group/subscription with their number. Moves no cursor. Raises 22023 without a start, 0A000 outside READ COMMITTED';

CREATE FUNCTION queen.log_forget_cursors(of_queue uuid, consumer_group text, after text,
                                         began timestamptz, max_rows int,
                                         OUT forgotten int, OUT last text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    ids     uuid[];
BEGIN
    SELECT array_agg(p.id), CASE WHEN count(*) = max_rows THEN max(p.name) END
      INTO ids, last
      FROM (SELECT a.id, a.name
              FROM queen.log_partitions a
             WHERE a.queue_id = of_queue AND a.name > after
             ORDER BY a.name
             LIMIT max_rows) p;
    ids := ARRAY(SELECT c.partition_id
                   FROM queen.log_consumers c
                  WHERE c.partition_id = ANY (ids) AND c.consumer_group = consumer_group
                    AND c.created_at < began
                  ORDER BY c.partition_id
                    FOR UPDATE);
    DELETE FROM queen.log_consumers c
     WHERE c.partition_id = ANY (ids) AND c.consumer_group = consumer_group;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    PERFORM queen.stat_lease_done(of_queue, k.id, consumer_group, true) FROM unnest(ids) AS k (id);
END
$$;
COMMENT ON FUNCTION queen.log_forget_cursors(uuid, text, text, timestamptz, int) IS
    'Deletes the cursors of a group that are older than began on the next max_rows partitions of a queue whose names follow after. last is the name of the last one, NULL when no more follow';

-- The first step on a queue takes the subscription away; a pop after it begins a new life of the
-- group there, whose cursors are younger than that step and stay.
CREATE FUNCTION queen.log_delete_group(tenant uuid, consumer_group text, queue text,
                                       metadata boolean, resume jsonb, max_rows int,
                                       OUT deleted int, OUT queue_id uuid, OUT next jsonb)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    place   CONSTANT uuid := resume ->> 'queue';
    began   timestamptz := resume ->> 'began';      -- NULL: the queue at this place is done
    after   text := coalesce(resume ->> 'after', '');
    last    text;
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_batch(max_rows);
    deleted := 0;
    IF resume IS NULL AND queue IS NULL AND metadata THEN
        PERFORM pg_advisory_xact_lock(queen.log_subscription_key(tenant, consumer_group));
        DELETE FROM queen.consumer_groups_metadata m
         WHERE m.tenant_id = tenant AND m.consumer_group = consumer_group AND m.queue_id IS NULL;
    END IF;

    -- The queue that the last step has not finished, or the next one that the group reads.
    SELECT q.id INTO queue_id
      FROM queen.queues q
     WHERE q.tenant_id = tenant AND q.deleted_at IS NULL AND (queue IS NULL OR q.name = queue)
       AND (q.id = place AND began IS NOT NULL
            OR (place IS NULL OR q.id > place)
               AND (EXISTS (SELECT FROM queen.consumer_groups_metadata m
                             WHERE m.queue_id = q.id AND m.consumer_group = consumer_group)
                    OR EXISTS (SELECT
                                 FROM queen.log_partitions p
                                 JOIN queen.log_consumers c
                                   ON c.partition_id = p.id AND c.consumer_group = consumer_group
                                WHERE p.queue_id = q.id)))
     ORDER BY q.id
     LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    PERFORM pg_advisory_xact_lock(queen.log_subscription_key(queue_id, consumer_group));
    IF began IS NULL OR queue_id <> place THEN
        began := clock_timestamp();
        after := '';
        IF metadata THEN
            DELETE FROM queen.consumer_groups_metadata m
             WHERE m.queue_id = queue_id AND m.consumer_group = consumer_group;
        ELSE
            UPDATE queen.consumer_groups_metadata m
               SET existing_from = NULL
             WHERE m.queue_id = queue_id AND m.consumer_group = consumer_group;
        END IF;
    END IF;
    SELECT f.forgotten, f.last INTO deleted, last
      FROM queen.log_forget_cursors(queue_id, consumer_group, after, began, max_rows) f;
    -- After the cursors: whoever moves the watermark now sees this, or sees this transaction.
    DELETE FROM queen.consumer_watermarks w
     WHERE w.queue_id = queue_id AND w.consumer_group = consumer_group;
    PERFORM queen.stat_doubt(queue_id);
    next := CASE WHEN last IS NOT NULL
                 THEN jsonb_build_object('queue', queue_id, 'after', last, 'began', began)
                 WHEN queue IS NULL
                 THEN jsonb_build_object('queue', queue_id) END;
END
$$;
COMMENT ON FUNCTION queen.log_delete_group(uuid, text, text, boolean, jsonb, int) IS
    'One step of the deletion of a consumer group, from one queue or (queue NULL) from all of the tenant: on max_rows partitions of one queue it deletes the group''s cursors, with their leases, and with metadata also its subscription; without, the subscription decides where the group starts anew. next is what to pass as resume (NULL at first) in the following step, in a transaction of its own, and NULL after the last. deleted counts the cursors of this step, queue_id is the queue that it worked on. Raises 22023 for max_rows below 1, 0A000 outside READ COMMITTED. Waits for sessions that hold the cursors';

CREATE FUNCTION queen.log_refresh_statistics() RETURNS jsonb
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS $$
    SELECT jsonb_build_object('success', true, 'rows', s.rows,
                              'refreshedAt', queen.wire_time(clock_timestamp()))
      FROM queen.history_step(1000) AS s;
$$;
COMMENT ON FUNCTION queen.log_refresh_statistics() IS
    'Takes a step of the history now, unless the last one is younger than half of queen.history_interval: the answer of POST /stats/refresh. Counters and lags are computed when they are asked for and need no refresh';
