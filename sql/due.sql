-- The due list: when a partition has something to delete.
--
-- Times follow from the oldest row that a partition holds and from its queue's options. Whoever
-- writes a row of log_due holds the partition's row lock and has read both after obtaining it.
-- Pushes write it only when the log or the sidecar was empty, everything else is a visit of the
-- maintenance.

CREATE FUNCTION queen.log_age(seconds int) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.make_interval(secs => nullif(seconds, 0));
END;
COMMENT ON FUNCTION queen.log_age(int) IS
    'An option in seconds as an interval; NULL for 0, which switches the option off';

CREATE FUNCTION queen.log_retention_rules(q queen.queues, OUT retention interval,
                                          OUT completed interval, OUT eviction interval)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN q.retention_enabled THEN queen.log_age(q.retention_seconds) END,
           CASE WHEN q.retention_enabled THEN queen.log_age(q.completed_retention_seconds) END,
           queen.log_age(q.max_wait_time_seconds);
END;
COMMENT ON FUNCTION queen.log_retention_rules(queen.queues) IS
    'The age at which each retention rule deletes a message of the queue; NULL for a rule that is not active';

CREATE FUNCTION queen.log_sidecar_age(q queen.queues) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT queen.log_age(greatest(q.dedup_window_seconds, q.completed_retention_seconds, 900));
END;
COMMENT ON FUNCTION queen.log_sidecar_age(queen.queues) IS
    'The age at which hashes of the queue''s messages are purged. Counts completed retention whether retention is enabled or not';

-- A twentieth of the age gathers rows to delete together, and nobody notices that they stayed.
CREATE FUNCTION queen.log_visit_pause(age interval) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT least(age / 20, interval '5 minutes');
END;
COMMENT ON FUNCTION queen.log_visit_pause(interval) IS
    'Shortest time between two visits of a partition for rows that expire at the given age';

-- What completed retention could not delete waits for a consumer group: the longer it has waited,
-- the longer the next visit can wait.
CREATE FUNCTION queen.log_retention_at(q queen.queues, oldest timestamptz, visited timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN d.due_at IS NOT NULL
                THEN greatest(d.due_at, visited + queen.log_visit_pause(d.age)) END
      FROM (SELECT least(r.retention, r.completed, r.eviction) AS age,
                   least(oldest + r.retention, oldest + r.eviction,
                         CASE WHEN oldest + r.completed <= visited
                              THEN visited + least((visited - oldest - r.completed) / 4,
                                                   interval '1 hour')
                              ELSE oldest + r.completed END) AS due_at
              FROM queen.log_retention_rules(q) AS r) AS d;
END;
COMMENT ON FUNCTION queen.log_retention_at(queen.queues, timestamptz, timestamptz) IS
    'When a partition is due for retention whose oldest segment is stamped oldest; NULL when it is empty or no rule is active. visited is the time of a visit that left this segment behind, NULL for none';

CREATE FUNCTION queen.log_purge_at(q queen.queues, oldest timestamptz, visited timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN oldest IS NOT NULL
                THEN greatest(oldest + a.age, visited + queen.log_visit_pause(a.age)) END
      FROM (SELECT queen.log_sidecar_age(q) AS age) AS a;
END;
COMMENT ON FUNCTION queen.log_purge_at(queen.queues, timestamptz, timestamptz) IS
    'As log_retention_at, for the oldest row of the sidecar';

CREATE FUNCTION queen.log_oldest_segment(p queen.log_partitions) RETURNS timestamptz
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.created_at
      FROM queen.log_segments AS s
     WHERE s.partition_id = p.id AND s.base_offset >= p.log_start
     ORDER BY s.base_offset
     LIMIT 1;
END;
COMMENT ON FUNCTION queen.log_oldest_segment(queen.log_partitions) IS
    'Stamp of the oldest segment of a partition; NULL when there is none';

CREATE FUNCTION queen.log_oldest_txn(p queen.log_partitions) RETURNS timestamptz
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT t.created_at
      FROM queen.log_txns AS t
     WHERE t.partition_id = p.id AND t.base_offset >= p.txns_start
     ORDER BY t.base_offset
     LIMIT 1;
END;
COMMENT ON FUNCTION queen.log_oldest_txn(queen.log_partitions) IS
    'Stamp of the oldest sidecar row of a partition; NULL when there is none';

CREATE FUNCTION queen.log_stricter(before queen.queues, after queen.queues) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.bool_or(coalesce(v.after < v.before, v.after IS NOT NULL))
      FROM queen.log_retention_rules(before) AS b
     CROSS JOIN queen.log_retention_rules(after) AS a
     CROSS JOIN LATERAL (VALUES (b.retention, a.retention), (b.completed, a.completed),
                                (b.eviction, a.eviction),
                                (queen.log_sidecar_age(before), queen.log_sidecar_age(after)))
           AS v (before, after);
END;
COMMENT ON FUNCTION queen.log_stricter(queen.queues, queen.queues) IS
    'Whether anything of a queue expires sooner after a change of its options than before it';

CREATE FUNCTION queen.log_start_walk() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO queen.log_due_walks (queue_id)
    SELECT NEW.id
     WHERE EXISTS (SELECT FROM queen.log_partitions AS p WHERE p.queue_id = NEW.id)
    ON CONFLICT (queue_id) DO UPDATE SET after = '';
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION queen.log_start_walk() IS
    'Asks for new due times for all partitions of the queue; options that got laxer need none, a visit that comes too early finds out';

CREATE TRIGGER queues_stricter AFTER UPDATE ON queen.queues
FOR EACH ROW WHEN (queen.log_stricter(OLD, NEW)) EXECUTE FUNCTION queen.log_start_walk();

-- Joins over primary keys only, whatever the planner believes about the tables.
CREATE FUNCTION queen.log_enlist(partition_ids uuid[], bases bigint[], stamps timestamptz[])
RETURNS void
LANGUAGE sql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
BEGIN ATOMIC
    INSERT INTO queen.log_due AS d (partition_id, retention_at, purge_at)
    SELECT p.id,
           CASE WHEN e.base = p.log_start THEN queen.log_retention_at(q, e.stamp, NULL) END,
           CASE WHEN e.base = p.txns_start THEN queen.log_purge_at(q, e.stamp, NULL) END
      FROM unnest(partition_ids, bases, stamps) AS e (partition_id, base, stamp)
      JOIN queen.log_partitions AS p ON p.id = e.partition_id
      JOIN queen.queues AS q ON q.id = p.queue_id
     WHERE e.base IN (p.log_start, p.txns_start)
    ON CONFLICT (partition_id) DO UPDATE
       SET retention_at = coalesce(excluded.retention_at, d.retention_at),
           purge_at = coalesce(excluded.purge_at, d.purge_at),
           idle_since = NULL;
END;
COMMENT ON FUNCTION queen.log_enlist(uuid[], bigint[], timestamptz[]) IS
    'Takes note of the segments that begin at bases and are stamped stamps where they are the first of a log or of a sidecar that was empty. The caller holds the partitions';

-- A step takes the partition that has been due longest, of those that nobody holds.
CREATE FUNCTION queen.log_take_due(due name, instant timestamptz, strength text) RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    target uuid;
BEGIN
    EXECUTE format('SELECT p.id
                      FROM queen.log_due AS d
                      JOIN queen.log_partitions AS p ON p.id = d.partition_id
                     WHERE d.%1$I <= $1
                     ORDER BY d.%1$I
                     LIMIT 1
                       FOR %2$s OF p SKIP LOCKED', due, strength)
       INTO target USING instant;
    RETURN target;
END
$$;
COMMENT ON FUNCTION queen.log_take_due(name, timestamptz, text) IS
    'Locks (UPDATE or NO KEY UPDATE) the partition with the earliest time in this column of log_due, not after instant, and returns it; NULL when there is none that nobody holds';

-- Somebody pushes to a busy partition nearly all the time, and passing over a row that is held
-- would pass over it for good: its lock is waited for, briefly. The choice is random because some
-- holders stay.
CREATE FUNCTION queen.log_await_partition(candidates uuid[]) RETURNS uuid
LANGUAGE plpgsql
SET lock_timeout = '100ms'
AS $$
DECLARE
    target uuid := candidates[1 + floor(random() * cardinality(candidates))];
BEGIN
    PERFORM FROM queen.log_partitions AS p WHERE p.id = target FOR NO KEY UPDATE;
    RETURN CASE WHEN FOUND THEN target END;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION queen.log_await_partition(uuid[]) IS
    'Locks one of these partitions, waiting at most 100 ms, and returns it; NULL when that failed';

CREATE FUNCTION queen.log_await_due(due name, instant timestamptz) RETURNS uuid
LANGUAGE plpgsql
AS $$
DECLARE
    candidates uuid[];
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT d.partition_id
                                   FROM queen.log_due AS d
                                  WHERE d.%1$I <= $1
                                  ORDER BY d.%1$I
                                  LIMIT 100)', due)
       INTO candidates USING instant;
    RETURN queen.log_await_partition(candidates);
END
$$;
COMMENT ON FUNCTION queen.log_await_due(name, timestamptz) IS
    'As log_take_due with NO KEY UPDATE, for when all that are due are held: waits for one of them, at most 100 ms';

CREATE FUNCTION queen.log_check_batch(max_rows int) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF (max_rows >= 1) IS NOT TRUE THEN
        RAISE EXCEPTION 'max_rows must be at least 1' USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_check_batch(int) IS
    'Raises 22023 unless max_rows, the bound of a maintenance step, is at least 1';
