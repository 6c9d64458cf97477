-- Discovery: a pop from any queue of a namespace or a task.
--
-- A group subscribes to the labels first, and through that to each queue when it meets it: where
-- it starts there is where it has started with the labels. As in pop.sql nothing waits for
-- another session, and the rows that are missing are added under try-locks.

CREATE FUNCTION queen.log_discovery_start(tenant uuid, namespace text, task text,
                                          consumer_group text, mode text, start_at timestamptz,
                                          OUT met boolean, OUT since timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    whole   CONSTANT boolean := consumer_group = '__QUEUE_MODE__'
                                OR (start_at IS NULL AND mode IS DISTINCT FROM 'new');
BEGIN
    -- Held exclusively by a session that deletes the group.
    met := pg_try_advisory_xact_lock_shared(queen.log_subscription_key(tenant, consumer_group));
    IF NOT met THEN
        RETURN;
    END IF;
    FOR attempt IN 1..2 LOOP
        SELECT queen.log_subscription_start(m, NULL) INTO since
          FROM queen.consumer_groups_metadata m
         WHERE m.tenant_id = tenant AND m.consumer_group = consumer_group
           AND m.queue_id IS NULL AND m.namespace = namespace AND m.task = task;
        IF FOUND THEN
            RETURN;
        END IF;
        met := attempt = 1
               AND pg_try_advisory_xact_lock(queen.log_contact_key(tenant, consumer_group));
        EXIT WHEN NOT met;
        -- With the lock it is certain that nobody else's row is on its way.
        INSERT INTO queen.consumer_groups_metadata
               (tenant_id, consumer_group, queue_id, namespace, task, subscription_mode,
                subscription_timestamp)
        VALUES (tenant, consumer_group, NULL, namespace, task,
                CASE WHEN whole THEN 'all' WHEN start_at IS NULL THEN 'new' ELSE 'timestamp' END,
                CASE WHEN whole THEN 'epoch' ELSE coalesce(start_at, clock_timestamp()) END)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
COMMENT ON FUNCTION queen.log_discovery_start(uuid, text, text, text, text, timestamptz) IS
    'The time from which a group receives what the queues of a namespace and task hold (the epoch: everything). The first call stores it. met is false when another session is at it';

-- Random order is what is fair between the queues: each has its turn at the whole batch.
CREATE FUNCTION queen.log_discover(tenant uuid, namespace text, task text, consumer_group text,
                                   worker uuid, batch int, max_partitions int, lease_seconds int,
                                   auto_ack boolean, fill_wait boolean, mode text,
                                   start_at timestamptz)
RETURNS TABLE (entry int, status text, partition_id uuid, partition text, base_offset bigint,
               end_offset bigint, first_offset bigint, last_offset bigint, created_at timestamptz,
               attempt int, blob bytea, retry_at timestamptz, error text, queue_id uuid)
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    start   record;
    target  text;
    slice   record;
    budget  int := batch;
    room    bigint := queen.log_answer_bytes();
    places  int := CASE WHEN max_partitions <= 0 THEN batch ELSE max_partitions END;
    served  uuid;                       -- the last partition that yielded something
BEGIN
    PERFORM queen.log_guard();
    entry := 1;
    error := CASE WHEN queen.log_valid_name(namespace) IS NOT TRUE THEN 'invalid namespace'
                  WHEN queen.log_valid_name(task) IS NOT TRUE THEN 'invalid task'
                  WHEN namespace = '' AND task = '' THEN 'namespace or task is required'
                  ELSE queen.log_pop_problem(tenant, '', NULL, consumer_group, worker, batch,
                                             max_partitions, lease_seconds, auto_ack, fill_wait,
                                             mode) END;
    IF error IS NOT NULL THEN
        status := 'invalid';
        RETURN NEXT;
        RETURN;
    END IF;

    SELECT * INTO start
      FROM queen.log_discovery_start(tenant, namespace, task, consumer_group, mode, start_at);
    IF start.met THEN
        FOR target IN
            SELECT q.name
              FROM queen.queues q
             WHERE q.tenant_id = tenant AND q.deleted_at IS NULL
               AND (namespace = '' OR q.namespace = namespace) AND (task = '' OR q.task = task)
             ORDER BY random()
        LOOP
            EXIT WHEN budget <= 0 OR room <= 0 OR places <= 0;
            FOR slice IN
                SELECT *
                  FROM queen.log_pop(ARRAY[tenant], ARRAY[target], ARRAY[NULL::text],
                                     ARRAY[consumer_group], ARRAY[worker], ARRAY[budget],
                                     ARRAY[places], ARRAY[lease_seconds], ARRAY[auto_ack],
                                     ARRAY[fill_wait], ARRAY['all'],
                                     ARRAY[nullif(start.since, 'epoch')])
            LOOP
                IF slice.status <> 'segment' THEN
                    retry_at := least(retry_at, slice.retry_at);
                    CONTINUE;
                END IF;
                IF slice.partition_id IS DISTINCT FROM served THEN
                    served := slice.partition_id;
                    places := places - 1;
                END IF;
                budget := budget - (slice.last_offset - slice.first_offset + 1)::int;
                room := room - queen.log_segment_bytes(slice.blob, slice.end_offset - slice.base_offset + 1);
                RETURN QUERY
                SELECT 1, slice.status, slice.partition_id, slice.partition, slice.base_offset,
                       slice.end_offset, slice.first_offset, slice.last_offset, slice.created_at,
                       slice.attempt, slice.blob, NULL::timestamptz, NULL::text, NULL::uuid;
            END LOOP;
        END LOOP;
    ELSE
        retry_at := clock_timestamp() + queen.log_contention_pause();
    END IF;

    IF budget = batch THEN
        status := 'empty';
        RETURN NEXT;
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_discover(uuid, text, text, text, uuid, int, int, int, boolean,
                                       boolean, text, timestamptz) IS
    'A pop from all queues of the tenant with this namespace and this task, of which one may be empty to match any, in random order until the batch is full. Arguments and answer otherwise as one entry of queen.log_pop; the queue''s own lease_time counts where lease_seconds is 0. mode and start_at count when the group meets this namespace and task for the first time: queues that it meets later are read from that time on. Never waits for a lock. Raises 0A000 outside READ COMMITTED';
