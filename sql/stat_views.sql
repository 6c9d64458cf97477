-- Statistics: what operators read. Counters come from shared memory, the state of consumers from
-- offsets; neither log_segments nor log_txns is searched.

CREATE FUNCTION queen.stat_preloaded() RETURNS boolean
LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_preloaded() IS
    'Whether the server has preloaded the library: without it there are no workers and no counters';

CREATE FUNCTION queen.stat_queues(OUT queue_id uuid, OUT pushes bigint, OUT push_messages bigint,
                                  OUT push_raw_bytes bigint, OUT push_bytes bigint,
                                  OUT duplicates bigint, OUT pops bigint, OUT empty_pops bigint,
                                  OUT pop_messages bigint, OUT leases bigint,
                                  OUT leases_expired bigint, OUT acks_completed bigint,
                                  OUT acks_failed bigint, OUT acks_retried bigint,
                                  OUT dead_letters bigint, OUT acks_dropped bigint,
                                  OUT retention_messages bigint, OUT pop_lag bigint,
                                  OUT max_pop_lag bigint, OUT parked bigint,
                                  OUT stats_reset timestamptz) RETURNS SETOF record
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_queues() IS
    'Counters of this database''s queues from shared memory, without any table. The row of the nil UUID sums up queues that were deleted; a row with queue_id NULL counts what found no room there, if anything. Raises 55000 when the library is not preloaded';

CREATE FUNCTION queen.stat_forget_max_lag() RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_forget_max_lag() IS
    'Sets max_pop_lag of this database''s queues to zero: the history does, for its next interval. Raises 55000 when the library is not preloaded';

CREATE FUNCTION queen.stat_workers(OUT datid oid, OUT worker text, OUT pid int, OUT state text,
                                   OUT step text, OUT cycles bigint,
                                   OUT last_cycle_start timestamptz,
                                   OUT last_cycle_duration double precision,
                                   OUT cycle_steps bigint, OUT cycle_rows bigint,
                                   OUT cycle_messages bigint, OUT cycle_bytes bigint,
                                   OUT rows bigint, OUT messages bigint, OUT bytes bigint,
                                   OUT oldest_due timestamptz, OUT errors bigint,
                                   OUT last_error text, OUT last_error_time timestamptz,
                                   OUT stats_reset timestamptz) RETURNS SETOF record
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.stat_workers() IS
    'The workers of all databases of queen.databases, from shared memory. Durations in milliseconds. Raises 55000 when the library is not preloaded';

CREATE FUNCTION queen.pg_stat_queen_reset() RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.pg_stat_queen_reset() IS
    'Sets the counters of this database''s queues and workers to zero. Raises 55000 when the library is not preloaded';

CREATE VIEW queen.pg_stat_queen_workers AS
    SELECT w.datid, d.datname, w.worker, w.pid, w.state, w.step, w.cycles, w.last_cycle_start,
           w.last_cycle_duration, w.rows, w.messages, w.bytes, w.oldest_due, w.errors,
           w.last_error, w.last_error_time, w.stats_reset
      FROM queen.stat_workers() AS w
      LEFT JOIN pg_catalog.pg_database AS d ON d.oid = w.datid;
COMMENT ON VIEW queen.pg_stat_queen_workers IS
    'One row per database of queen.databases and worker, of the whole server';
COMMENT ON COLUMN queen.pg_stat_queen_workers.datid IS 'OID of the database';
COMMENT ON COLUMN queen.pg_stat_queen_workers.datname IS 'Name of the database';
COMMENT ON COLUMN queen.pg_stat_queen_workers.worker IS
    'retention, sidecar purge, lease expiry, wake or history';
COMMENT ON COLUMN queen.pg_stat_queen_workers.pid IS 'Process id; NULL when it does not run';
COMMENT ON COLUMN queen.pg_stat_queen_workers.state IS
    'running a step, sleeping, backing off after an error, or stopped';
COMMENT ON COLUMN queen.pg_stat_queen_workers.step IS 'Current step, or the last one';
COMMENT ON COLUMN queen.pg_stat_queen_workers.cycles IS 'Complete cycles';
COMMENT ON COLUMN queen.pg_stat_queen_workers.last_cycle_start IS
    'Start of the current cycle, or of the last one';
COMMENT ON COLUMN queen.pg_stat_queen_workers.last_cycle_duration IS
    'Length of the last complete cycle, milliseconds';
COMMENT ON COLUMN queen.pg_stat_queen_workers.rows IS
    'Rows deleted (retention, sidecar purge), leases released, notifications sent, rows of history';
COMMENT ON COLUMN queen.pg_stat_queen_workers.messages IS
    'Messages deleted, or that released leases held';
COMMENT ON COLUMN queen.pg_stat_queen_workers.bytes IS 'Bytes deleted, as stored';
COMMENT ON COLUMN queen.pg_stat_queen_workers.oldest_due IS
    'Since when the longest overdue item has been waiting; NULL when nothing is overdue';
COMMENT ON COLUMN queen.pg_stat_queen_workers.errors IS 'Steps that failed';
COMMENT ON COLUMN queen.pg_stat_queen_workers.last_error IS 'SQLSTATE and message of the last failure';
COMMENT ON COLUMN queen.pg_stat_queen_workers.last_error_time IS 'When that was';
COMMENT ON COLUMN queen.pg_stat_queen_workers.stats_reset IS
    'When the counters of this row started from zero';

CREATE VIEW queen.pg_stat_queen_progress_retention AS
    SELECT w.pid, w.datid, d.datname, w.step AS phase, w.last_cycle_start AS cycle_start,
           w.cycle_steps AS steps_done, w.cycle_rows AS rows_deleted,
           w.cycle_messages AS messages_deleted, w.cycle_bytes AS bytes_deleted
      FROM queen.stat_workers() AS w
      LEFT JOIN pg_catalog.pg_database AS d ON d.oid = w.datid
     WHERE w.worker IN ('retention', 'sidecar purge') AND w.state = 'running';
COMMENT ON VIEW queen.pg_stat_queen_progress_retention IS
    'One row per worker that is deleting now: what its current cycle has done';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.pid IS 'Process id of the worker';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.datid IS 'OID of the database';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.datname IS 'Name of the database';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.phase IS 'The step that runs';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.cycle_start IS 'Start of the cycle';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.steps_done IS 'Steps that are committed';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.rows_deleted IS 'Rows deleted by them';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.messages_deleted IS
    'Messages deleted by them';
COMMENT ON COLUMN queen.pg_stat_queen_progress_retention.bytes_deleted IS
    'Bytes deleted by them, as stored';

CREATE VIEW queen.pg_stat_queen_queues AS
    SELECT q.id AS queue_id, q.tenant_id, q.name AS queue,
           coalesce(s.pushes, 0) AS pushes, coalesce(s.push_messages, 0) AS push_messages,
           coalesce(s.push_raw_bytes, 0) AS push_raw_bytes,
           coalesce(s.push_bytes, 0) AS push_bytes, coalesce(s.duplicates, 0) AS duplicates,
           coalesce(s.pops, 0) AS pops, coalesce(s.empty_pops, 0) AS empty_pops,
           coalesce(s.pop_messages, 0) AS pop_messages, coalesce(s.leases, 0) AS leases,
           coalesce(s.leases_expired, 0) AS leases_expired,
           coalesce(s.acks_completed, 0) AS acks_completed,
           coalesce(s.acks_failed, 0) AS acks_failed,
           coalesce(s.acks_retried, 0) AS acks_retried,
           coalesce(s.dead_letters, 0) AS dead_letters,
           coalesce(s.acks_dropped, 0) AS acks_dropped,
           coalesce(s.retention_messages, 0) AS retention_messages,
           coalesce(s.pop_lag, 0) AS pop_lag,
           coalesce(s.parked, 0) AS parked, s.stats_reset
      FROM (SELECT r.id, r.tenant_id, r.name FROM queen.queues AS r WHERE r.deleted_at IS NULL) AS q
      FULL JOIN queen.stat_queues() AS s ON s.queue_id = q.id
     WHERE q.id IS NOT NULL OR s.queue_id IS NULL;
COMMENT ON VIEW queen.pg_stat_queen_queues IS
    'One row per queue of this database. A row with queue_id NULL counts what found no room in the table of tracked queues (queen.max_tracked_queues), of all databases';
COMMENT ON COLUMN queen.pg_stat_queen_queues.queue_id IS 'The queue; NULL for queues that are not tracked one by one';
COMMENT ON COLUMN queen.pg_stat_queen_queues.tenant_id IS 'Its tenant';
COMMENT ON COLUMN queen.pg_stat_queen_queues.queue IS 'Its name';
COMMENT ON COLUMN queen.pg_stat_queen_queues.pushes IS 'Segments stored';
COMMENT ON COLUMN queen.pg_stat_queen_queues.push_messages IS 'Messages stored';
COMMENT ON COLUMN queen.pg_stat_queen_queues.push_raw_bytes IS 'Bytes of these messages before compression';
COMMENT ON COLUMN queen.pg_stat_queen_queues.push_bytes IS 'Bytes of these messages as stored';
COMMENT ON COLUMN queen.pg_stat_queen_queues.duplicates IS 'Messages refused as duplicates';
COMMENT ON COLUMN queen.pg_stat_queen_queues.pops IS 'Pops, empty ones included';
COMMENT ON COLUMN queen.pg_stat_queen_queues.empty_pops IS 'Pops that found nothing to deliver';
COMMENT ON COLUMN queen.pg_stat_queen_queues.pop_messages IS 'Messages delivered, repeated deliveries included';
COMMENT ON COLUMN queen.pg_stat_queen_queues.leases IS 'Leases granted';
COMMENT ON COLUMN queen.pg_stat_queen_queues.leases_expired IS 'Leases that ran out and were released by the worker';
COMMENT ON COLUMN queen.pg_stat_queen_queues.acks_completed IS 'Messages completed, those delivered with autoAck included';
COMMENT ON COLUMN queen.pg_stat_queen_queues.acks_failed IS 'Failures that were charged to the retry budget';
COMMENT ON COLUMN queen.pg_stat_queen_queues.acks_retried IS 'Batches given back without a charge';
COMMENT ON COLUMN queen.pg_stat_queen_queues.dead_letters IS 'Messages filed as dead letters';
COMMENT ON COLUMN queen.pg_stat_queen_queues.acks_dropped IS 'Messages dropped because the queue keeps no dead letters';
COMMENT ON COLUMN queen.pg_stat_queen_queues.retention_messages IS 'Messages deleted by retention';
COMMENT ON COLUMN queen.pg_stat_queen_queues.pop_lag IS 'Milliseconds that delivered messages had waited since they were pushed, in sum; over pop_messages it is the average';
COMMENT ON COLUMN queen.pg_stat_queen_queues.parked IS 'Pops that wait in front ends now';
COMMENT ON COLUMN queen.pg_stat_queen_queues.stats_reset IS
    'When the counters of this row started from zero; NULL when nothing has been counted';

CREATE FUNCTION queen.stat_consumers(OUT queue_id uuid, OUT tenant_id uuid, OUT queue text,
                                     OUT consumer_group text, OUT partitions bigint,
                                     OUT lag bigint, OUT lagging_partitions bigint,
                                     OUT oldest_unconsumed timestamptz, OUT active_leases bigint,
                                     OUT leased_messages bigint, OUT consumed bigint)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, queen, pg_temp
SET jit = off
AS $$
    SELECT q.id, q.tenant_id, q.name, c.consumer_group, count(*), sum(c.lag)::bigint,
           count(*) FILTER (WHERE c.lag > 0),
           min(CASE WHEN c.lag > 0
                    THEN (SELECT s.created_at
                            FROM queen.log_segments AS s
                           WHERE s.partition_id = p.id AND s.base_offset <= c.passed + 1
                           ORDER BY s.base_offset DESC
                           LIMIT 1) END),
           count(c.leased), coalesce(sum(c.leased), 0)::bigint, sum(c.consumed)::bigint
      FROM queen.queues AS q
      JOIN queen.log_partitions AS p ON p.queue_id = q.id
     CROSS JOIN LATERAL queen.partition_places(p) AS c
     WHERE q.deleted_at IS NULL
     GROUP BY q.id, c.consumer_group;
$$;
COMMENT ON FUNCTION queen.stat_consumers() IS
    'Where each consumer group stands in each queue. One probe of the primary key of log_segments per partition with a lag';

CREATE VIEW queen.pg_stat_queen_consumers AS
    SELECT c.queue_id, c.tenant_id, c.queue, c.consumer_group, c.partitions, c.lag,
           c.lagging_partitions, c.oldest_unconsumed,
           pg_catalog.clock_timestamp() - c.oldest_unconsumed AS oldest_unconsumed_age,
           c.active_leases, c.leased_messages, c.consumed
      FROM queen.stat_consumers() AS c;
COMMENT ON VIEW queen.pg_stat_queen_consumers IS
    'One row per queue and consumer group of this database; consumers that name no group are __QUEUE_MODE__';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.queue_id IS 'The queue';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.tenant_id IS 'Its tenant';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.queue IS 'Its name';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.consumer_group IS 'Name of the group';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.partitions IS 'Partitions that the group reads';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.lag IS
    'Messages that the group has yet to complete, those under a lease included';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.lagging_partitions IS 'Partitions that hold them';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.oldest_unconsumed IS
    'When the oldest of them was pushed; NULL without lag';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.oldest_unconsumed_age IS 'How long ago that was';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.active_leases IS 'Partitions under a live lease';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.leased_messages IS 'Messages under these leases';
COMMENT ON COLUMN queen.pg_stat_queen_consumers.consumed IS
    'Messages that the group has passed since its cursors exist';
