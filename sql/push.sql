-- Push: see src/bgworker/push.c.

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

CREATE FUNCTION queen.log_push(tenants uuid[], queues text[], partitions text[], counts int[],
                               hashes bytea[], blobs bytea[], wait boolean)
RETURNS SETOF queen.push_verdict
LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_push(uuid[], text[], text[], int[], bytea[], bytea[], boolean) IS
    'Appends segments: entry i is counts[i] messages whose transaction ids hash to hashes[i] (16 bytes each) and whose frames are blobs[i]. One row per entry, in entry order; status queued, duplicate, busy (wait false: another session holds the partition), missing, clear (the queue is encrypted and a message is not) or invalid. Raises 22023 for arrays of unequal length, 0A000 outside READ COMMITTED and for tables that have triggers of the user''s, 25006 in a read-only transaction, 55P03 when wait is true and lock_timeout ends';
