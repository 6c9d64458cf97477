-- Push: segments get their offsets, their stamp and their place in the log.
--
-- Locks: partition rows, ascending by id, in one statement; FOR NO KEY UPDATE, because a first
-- contact inserts a cursor and needs FOR KEY SHARE on its partition. Every statement after it
-- takes a new snapshot and so sees what the last holder of a row committed.

CREATE TYPE queen.push_verdict AS (
    entry            int,
    status           text,
    partition_id     uuid,
    base_offset      bigint,
    created_at       timestamptz,
    duplicate_frames int[],
    duplicate_ids    uuid[],
    error            text
);
COMMENT ON TYPE queen.push_verdict IS 'What became of one entry of queen.log_push';

CREATE FUNCTION queen.log_push_error(tenant uuid, queue text, partition text, frames int,
                                     hashes bytea, blob bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE
        WHEN tenant IS NULL THEN 'tenant is missing'
        WHEN queen.log_valid_name(queue) IS NOT TRUE THEN 'queue is missing or not a valid name'
        WHEN partition = '' OR queen.log_valid_name(partition) IS NOT TRUE
            THEN 'partition is missing or not a valid name'
        WHEN frames BETWEEN 1 AND 10000 IS NOT TRUE THEN 'count must be between 1 and 10000'
        WHEN pg_catalog.length(hashes) = 16 * frames IS NOT TRUE
            THEN 'hashes must be 16 bytes per message'
        WHEN pg_catalog.length(blob) > 0 IS NOT TRUE THEN 'blob is empty'
        WHEN NOT queen.log_hashes_distinct(hashes)
            THEN 'two messages of one segment have the same transaction id'
    END;
END;
COMMENT ON FUNCTION queen.log_push_error(uuid, text, text, int, bytea, bytea) IS
    'Why an entry of queen.log_push is invalid; NULL when it is not';

CREATE FUNCTION queen.log_maybe_duplicate(partition_id uuid, txns_start bigint, last_offset bigint,
                                          since timestamptz, hashes bytea) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_maybe_duplicate(uuid, bigint, bigint, timestamptz, bytea) IS
    'False only when none of the hashes is in the sidecar rows from offset txns_start on that are stamped at or after since. Remembers what it read, so that the next call of the session reads only what is new. The caller holds the partition row, in an older statement';

-- One hash join of what comes in with those sidecar rows of the window that hold a duplicate.
-- OFFSET 0 keeps the parts apart: the sidecar is read by a range of its primary key, and the
-- concatenation gets each value out of TOAST once instead of once per hash.
CREATE FUNCTION queen.log_push_duplicates(entries int[], partition_ids uuid[], hashes bytea[],
                                          since timestamptz[])
RETURNS TABLE (entry int, frames int[], message_ids uuid[])
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_hashjoin = on
SET jit = off
AS $$
BEGIN
    RETURN QUERY
    WITH incoming AS MATERIALIZED (
        SELECT e.entry, e.partition_id, e.hashes, e.since,
               (SELECT string_agg(u.h, '' ORDER BY u.h)
                  FROM queen.log_unnest_hashes(e.hashes) AS u) AS sorted
          FROM unnest(entries, partition_ids, hashes, since)
               AS e (entry, partition_id, hashes, since)
         WHERE e.since IS NOT NULL
    ), original AS MATERIALIZED (
        SELECT DISTINCT ON (w.entry, w.idx)
               w.entry, w.idx, s.partition_id, s.base_offset, s.idx AS original
          FROM (SELECT i.entry, u.idx, u.h
                  FROM incoming AS i
                 CROSS JOIN LATERAL queen.log_unnest_hashes(i.hashes) AS u
                OFFSET 0) AS w
          JOIN (SELECT i.entry, i.partition_id, t.base_offset, u.idx, u.h
                  FROM incoming AS i
                 CROSS JOIN LATERAL (
                        SELECT x.base_offset, x.hashes || ''::bytea AS hashes
                          FROM queen.log_partitions AS p
                          JOIN queen.log_txns AS x
                            ON x.partition_id = p.id AND x.base_offset >= p.txns_start
                         WHERE p.id = i.partition_id AND x.created_at >= i.since
                           AND queen.log_hashes_overlap(i.sorted, x.hashes)
                        OFFSET 0) AS t
                 CROSS JOIN LATERAL queen.log_unnest_hashes(t.hashes) AS u
                OFFSET 0) AS s ON s.entry = w.entry AND s.h = w.h
         ORDER BY w.entry, w.idx, s.base_offset, s.idx
    ), decoded AS MATERIALIZED (
        SELECT o.partition_id, o.base_offset, queen.log_message_ids(s.blob) AS ids
          FROM (SELECT DISTINCT r.partition_id, r.base_offset FROM original AS r) AS o
         CROSS JOIN LATERAL (
                SELECT g.blob
                  FROM queen.log_segments AS g
                 WHERE g.partition_id = o.partition_id AND g.base_offset = o.base_offset
                OFFSET 0) AS s
    )
    SELECT o.entry, array_agg(o.idx ORDER BY o.idx),
           array_agg(coalesce(d.ids[o.original + 1], '00000000-0000-0000-0000-000000000000')
                     ORDER BY o.idx)
      FROM original AS o
      LEFT JOIN decoded AS d ON d.partition_id = o.partition_id AND d.base_offset = o.base_offset
     GROUP BY o.entry;
END
$$;
COMMENT ON FUNCTION queen.log_push_duplicates(int[], uuid[], bytea[], timestamptz[]) IS
    'Looks for the hashes of segments in the sidecar rows that are stamped at or after since (NULL: not at all). One row per segment with duplicates: which frames, counted from 0, and the message ids of the originals, the lowest offset first; the nil UUID when a segment is gone or corrupt. The caller holds the partitions';

CREATE FUNCTION queen.log_push_append(entries int[], targets uuid[], stamps timestamptz[],
                                      skipped int[], counts int[], hashes bytea[], blobs bytea[])
RETURNS queen.push_verdict[]
LANGUAGE plpgsql
AS $$
DECLARE
    verdicts queen.push_verdict[];
    woken    boolean;                -- a log or a sidecar was empty
BEGIN
    WITH allocated AS (
        UPDATE queen.log_partitions AS p
           SET last_offset = p.last_offset + counts[e.entry],
               last_created_at = e.stamp,
               last_write_at = CASE WHEN e.stamp > p.last_write_at + interval '1 second'
                                    THEN e.stamp ELSE p.last_write_at END,
               segments = p.segments + 1,
               bytes = p.bytes + length(blobs[e.entry])
          FROM unnest(entries, targets, stamps) AS e (entry, target, stamp)
         WHERE p.id = e.target AND e.entry <> ALL (skipped)
        RETURNING e.entry, p.id, p.last_offset - counts[e.entry] + 1 AS base_offset,
                  p.last_offset AS end_offset, e.stamp, p.log_start, p.txns_start, p.queue_id
    ), segment AS (
        INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
        SELECT a.id, a.base_offset, a.end_offset, a.stamp, blobs[a.entry] FROM allocated AS a
    ), txn AS (
        INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
        SELECT a.id, a.base_offset, a.end_offset, a.stamp, hashes[a.entry] FROM allocated AS a
    )
    SELECT array_agg(ROW (a.entry, 'queued', a.id, a.base_offset, a.stamp, NULL, NULL, NULL)
                     ::queen.push_verdict),
           bool_or(a.base_offset IN (a.log_start, a.txns_start))
      INTO verdicts, woken
      FROM (SELECT c.*, queen.stat_push(c.queue_id, 1, counts[c.entry],
                                        queen.log_raw_size(blobs[c.entry]),
                                        length(blobs[c.entry]), 0),
                     queen.stat_written(c.queue_id, c.id)
              FROM allocated AS c
            OFFSET 0) AS a;
    IF woken THEN
        PERFORM queen.log_enlist(array_agg(v.partition_id), array_agg(v.base_offset),
                                 array_agg(v.created_at))
           FROM unnest(verdicts) AS v;
    END IF;
    RETURN verdicts;
END
$$;
COMMENT ON FUNCTION queen.log_push_append(int[], uuid[], timestamptz[], int[], int[], bytea[], bytea[]) IS
    'Gives offsets to one segment per partition and stores it with its sidecar row. entries, targets and stamps are aligned; entries index into counts, hashes and blobs; skipped entries are left out. The caller holds the partitions';

-- Generic plans over primary keys only: with few rows, or before the first ANALYZE, the planner
-- would choose scans and joins that are ruinous once the tables have grown.
CREATE FUNCTION queen.log_push(tenants uuid[], queues text[], partitions text[], counts int[],
                               hashes bytea[], blobs bytea[], wait boolean)
RETURNS SETOF queen.push_verdict
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    errors   text[];                 -- per entry
    ids      uuid[];                 -- per entry: its partition
    held     uuid[];                 -- partitions that this call could lock
    verdicts queen.push_verdict[];   -- in any order
    todo     int[];                  -- entries that have no verdict after the locks
    rounds   int[];                  -- aligned with todo: first, second, ... of its partition
    entries  int[];                  -- of one round, as what follows
    targets  uuid[];
    incoming bytea[];
    stamps   timestamptz[];
    since    timestamptz[];
    repeated queen.push_verdict[];
BEGIN
    PERFORM queen.log_guard();
    PERFORM queen.log_check_arrays(cardinality(tenants), cardinality(queues),
                                   cardinality(partitions), cardinality(counts),
                                   cardinality(hashes), cardinality(blobs));

    SELECT array_agg(c.error ORDER BY c.entry),
           array_agg((SELECT p.id
                        FROM queen.queues AS q
                        JOIN queen.log_partitions AS p ON p.queue_id = q.id
                       WHERE c.error IS NULL AND q.tenant_id = c.tenant AND q.name = c.queue
                         AND p.name = c.partition) ORDER BY c.entry)
      INTO errors, ids
      FROM (SELECT e.entry, e.tenant, e.queue, e.partition,
                   queen.log_push_error(e.tenant, e.queue, e.partition, e.frames, e.hashes,
                                        e.blob) AS error
              FROM unnest(tenants, queues, partitions, counts, hashes, blobs)
                   WITH ORDINALITY
                   AS e (tenant, queue, partition, frames, hashes, blob, entry)
            OFFSET 0) AS c;

    IF wait THEN
        held := ARRAY(SELECT p.id FROM queen.log_partitions AS p
                       WHERE p.id = ANY (ids) ORDER BY p.id FOR NO KEY UPDATE);
    ELSE
        held := ARRAY(SELECT p.id FROM queen.log_partitions AS p
                       WHERE p.id = ANY (ids) ORDER BY p.id FOR NO KEY UPDATE SKIP LOCKED);
    END IF;

    -- The queue may have been deleted, or become encrypted, before its partition was ours.
    SELECT array_agg(ROW (s.entry, s.status, NULL, NULL, NULL, NULL, NULL, s.error)
                     ::queen.push_verdict) FILTER (WHERE s.status IS NOT NULL),
           array_agg(s.entry ORDER BY s.entry) FILTER (WHERE s.status IS NULL),
           array_agg(s.round ORDER BY s.entry) FILTER (WHERE s.status IS NULL)
      INTO verdicts, todo, rounds
      FROM (SELECT e.entry,
                   e.error,
                   row_number() OVER (PARTITION BY e.id ORDER BY e.entry) AS round,
                   CASE WHEN e.error IS NOT NULL THEN 'invalid'
                        WHEN o.encrypted IS NULL THEN 'missing'
                        WHEN e.id <> ALL (held) THEN 'busy'
                        WHEN o.encrypted AND NOT queen.log_all_encrypted(blobs[e.entry])
                            THEN 'clear' END AS status
              FROM unnest(errors, ids) WITH ORDINALITY AS e (error, id, entry)
              LEFT JOIN LATERAL (SELECT q.encryption_enabled AS encrypted
                                   FROM queen.log_partitions AS p
                                   JOIN queen.queues AS q ON q.id = p.queue_id
                                  WHERE p.id = e.id AND q.deleted_at IS NULL
                                 OFFSET 0) AS o ON true) AS s;

    -- One entry per partition at a time: the next one sees the hashes of those before it.
    FOR turn IN 1 .. coalesce((SELECT max(r) FROM unnest(rounds) AS r), 0) LOOP
        SELECT array_agg(t.entry), array_agg(p.id), array_agg(hashes[t.entry]),
               array_agg(n.stamp),
               array_agg(CASE WHEN q.dedup_window_seconds > 0 AND p.last_offset >= p.txns_start
                               AND queen.log_maybe_duplicate(p.id, p.txns_start, p.last_offset,
                                                             n.since, hashes[t.entry])
                              THEN n.since END)
          INTO entries, targets, incoming, stamps, since
          FROM unnest(todo, rounds) AS t (entry, round)
          JOIN queen.log_partitions AS p ON p.id = ids[t.entry]
          JOIN queen.queues AS q ON q.id = p.queue_id
         CROSS JOIN LATERAL (SELECT s, s - make_interval(secs => q.dedup_window_seconds)
                               FROM (SELECT greatest(clock_timestamp(),
                                                     p.last_created_at + interval '1 microsecond')
                                     OFFSET 0) AS c (s)) AS n (stamp, since)
         WHERE t.round = turn;

        repeated := NULL;
        IF cardinality(array_remove(since, NULL)) > 0 THEN
            SELECT array_agg(ROW (d.entry, 'duplicate', NULL, NULL, NULL, d.frames, d.message_ids,
                                  NULL)::queen.push_verdict)
              INTO repeated
              FROM queen.log_push_duplicates(entries, targets, incoming, since) AS d;
            verdicts := verdicts || repeated;
            PERFORM queen.stat_push(p.queue_id, 0, 0, 0, 0, cardinality(r.duplicate_frames))
               FROM unnest(repeated) AS r
               JOIN queen.log_partitions AS p ON p.id = ids[r.entry];
        END IF;

        verdicts := verdicts || queen.log_push_append(
            entries, targets, stamps, ARRAY(SELECT r.entry FROM unnest(repeated) AS r),
            counts, hashes, blobs);
    END LOOP;

    RETURN QUERY SELECT v.* FROM unnest(verdicts) AS v ORDER BY v.entry;
END
$$;
COMMENT ON FUNCTION queen.log_push(uuid[], text[], text[], int[], bytea[], bytea[], boolean) IS
    'Appends segments: entry i is counts[i] messages whose transaction ids hash to hashes[i] (16 bytes each) and whose frames are blobs[i]. One row per entry, in entry order; status queued, duplicate, busy (wait false: another session holds the partition), missing, clear (the queue is encrypted and a message is not) or invalid. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED, 55P03 when wait is true and lock_timeout ends';
