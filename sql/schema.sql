-- Tables of the log. A message is one frame in one row of log_segments; its address is
-- (partition, offset). Progress of a consumer group is one row of log_consumers.

CREATE TABLE queen.queues (
    id                          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id                   uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000001',
    name                        varchar(255) NOT NULL,
    namespace                   varchar(255) NOT NULL DEFAULT '',
    task                        varchar(255) NOT NULL DEFAULT '',
    priority                    int NOT NULL DEFAULT 0,
    lease_time                  int NOT NULL DEFAULT 60,
    retry_limit                 int NOT NULL DEFAULT 3,
    retry_delay                 int NOT NULL DEFAULT 1000,
    ttl                         int NOT NULL DEFAULT 3600,
    max_queue_size              int NOT NULL DEFAULT 0,
    dead_letter_queue           boolean NOT NULL DEFAULT true,
    dlq_after_max_retries       boolean NOT NULL DEFAULT true,
    delayed_processing          int NOT NULL DEFAULT 0,
    window_buffer               int NOT NULL DEFAULT 0,
    min_pop_wait_time           int NOT NULL DEFAULT 0,
    retention_enabled           boolean NOT NULL DEFAULT false,
    retention_seconds           int NOT NULL DEFAULT 0,
    completed_retention_seconds int NOT NULL DEFAULT 0,
    max_wait_time_seconds       int NOT NULL DEFAULT 0,
    encryption_enabled          boolean NOT NULL DEFAULT false,
    dedup_window_seconds        int NOT NULL DEFAULT 3600,
    created_at                  timestamptz NOT NULL DEFAULT now(),
    deleted_at                  timestamptz
);
CREATE UNIQUE INDEX queues_tenant_name_uk ON queen.queues (tenant_id, name);
-- The tenant comes last: nobody shall look for a name in the tenant's part of this index, which is
-- all the same to a planner that knows nothing of the table.
CREATE INDEX queues_labels_idx ON queen.queues (namespace, task, tenant_id);
CREATE INDEX queues_deleted_idx ON queen.queues (deleted_at) WHERE deleted_at IS NOT NULL;

COMMENT ON TABLE queen.queues IS 'One row per queue: its identity (id) and its whole configuration';
COMMENT ON COLUMN queen.queues.tenant_id IS 'Opaque scoping key; the fixed default tenant unless the front end passes another';
COMMENT ON COLUMN queen.queues.name IS 'Name as clients send it, unique per tenant; a deleted queue is renamed to a name no client can send';
COMMENT ON COLUMN queen.queues.namespace IS 'Grouping label; text before the first dot of the name when a push created the queue';
COMMENT ON COLUMN queen.queues.task IS 'Grouping label; second dot-separated part of the name when a push created the queue';
COMMENT ON COLUMN queen.queues.priority IS 'Stored and echoed; has no effect on delivery';
COMMENT ON COLUMN queen.queues.lease_time IS 'Lease of a pop that names none, seconds; 60 on a queue created by a push, 300 by configure';
COMMENT ON COLUMN queen.queues.retry_limit IS 'Explicit failures before a message is dead-lettered; 0 dead-letters the first';
COMMENT ON COLUMN queen.queues.retry_delay IS 'Milliseconds; stored and echoed, redelivery is immediate';
COMMENT ON COLUMN queen.queues.ttl IS 'Seconds; stored and echoed, nothing expires on it';
COMMENT ON COLUMN queen.queues.max_queue_size IS 'Stored and echoed; no push is refused for depth';
COMMENT ON COLUMN queen.queues.dead_letter_queue IS 'Exhausted messages are dead-lettered when this or dlq_after_max_retries is true, else dropped';
COMMENT ON COLUMN queen.queues.dlq_after_max_retries IS 'Exhausted messages are dead-lettered when this or dead_letter_queue is true, else dropped';
COMMENT ON COLUMN queen.queues.delayed_processing IS 'Seconds a segment must age before it is delivered';
COMMENT ON COLUMN queen.queues.window_buffer IS 'Seconds that the oldest undelivered message waits for a full batch';
COMMENT ON COLUMN queen.queues.min_pop_wait_time IS 'Milliseconds (0..60000) a long poll waits for a fuller batch';
COMMENT ON COLUMN queen.queues.retention_enabled IS 'Gate of retention_seconds and completed_retention_seconds';
COMMENT ON COLUMN queen.queues.retention_seconds IS 'Messages older than this are deleted, consumed or not; 0 keeps them';
COMMENT ON COLUMN queen.queues.completed_retention_seconds IS 'Messages that every group has passed are deleted after this; 0 keeps them';
COMMENT ON COLUMN queen.queues.max_wait_time_seconds IS 'Messages older than this are deleted whatever their state, retention enabled or not; 0 keeps them';
COMMENT ON COLUMN queen.queues.encryption_enabled IS 'Payloads are stored encrypted by the front end';
COMMENT ON COLUMN queen.queues.dedup_window_seconds IS 'A transaction id repeated inside this window is a duplicate; 0 switches the probe off';
COMMENT ON COLUMN queen.queues.created_at IS 'When the row was created; configure keeps it';
COMMENT ON COLUMN queen.queues.deleted_at IS 'Tombstone: set when the queue is deleted, so that its name is free at once and its data can go in bounded steps';

CREATE TABLE queen.log_partitions (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    queue_id        uuid NOT NULL REFERENCES queen.queues (id) ON DELETE CASCADE,
    name            text NOT NULL DEFAULT 'Default',
    last_offset     bigint NOT NULL DEFAULT -1,
    log_start       bigint NOT NULL DEFAULT 0,
    txns_start      bigint NOT NULL DEFAULT 0,
    last_write_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_created_at timestamptz NOT NULL DEFAULT '-infinity',
    segments        bigint NOT NULL DEFAULT 0,
    bytes           bigint NOT NULL DEFAULT 0,
    UNIQUE (queue_id, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        vacuum_truncate = off);
CREATE INDEX idx_log_partitions_queue_write ON queen.log_partitions (queue_id, last_write_at);

COMMENT ON TABLE queen.log_partitions IS 'One row per partition; its row lock serializes the writers of the partition';
COMMENT ON COLUMN queen.log_partitions.last_offset IS 'The allocator: highest allocated offset, -1 before the first message';
COMMENT ON COLUMN queen.log_partitions.log_start IS 'Every offset below it has been deleted by retention';
COMMENT ON COLUMN queen.log_partitions.txns_start IS 'Every log_txns row below it has been purged';
COMMENT ON COLUMN queen.log_partitions.last_write_at IS 'Last write, changed at most once in ten seconds because it is indexed: every other push stays HOT';
COMMENT ON COLUMN queen.log_partitions.last_created_at IS 'Stamp of the newest segment: keeps created_at monotone when the clock steps back';
COMMENT ON COLUMN queen.log_partitions.segments IS 'Live rows of log_segments, so that listings need not count them';
COMMENT ON COLUMN queen.log_partitions.bytes IS 'Bytes of live blobs, so that listings need not read them';

CREATE TABLE queen.log_due (
    partition_id uuid PRIMARY KEY REFERENCES queen.log_partitions (id) ON DELETE CASCADE,
    retention_at timestamptz,
    purge_at     timestamptz,
    idle_since   timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        vacuum_truncate = off);
CREATE INDEX log_due_retention_idx ON queen.log_due (retention_at) WHERE retention_at IS NOT NULL;
CREATE INDEX log_due_purge_idx ON queen.log_due (purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX log_due_idle_idx ON queen.log_due (idle_since) WHERE idle_since IS NOT NULL;

COMMENT ON TABLE queen.log_due IS 'Due list of the maintenance, one row per partition, protected by the partition''s row lock: a cycle reads what is due and not what exists';
COMMENT ON COLUMN queen.log_due.retention_at IS 'When a segment may be due for deletion; NULL while the log is empty or no rule is active';
COMMENT ON COLUMN queen.log_due.purge_at IS 'When a sidecar row is due for deletion; NULL while the sidecar is empty';
COMMENT ON COLUMN queen.log_due.idle_since IS 'Since when the partition has been without messages; NULL while it holds some';

CREATE TABLE queen.log_due_walks (
    queue_id uuid PRIMARY KEY REFERENCES queen.queues (id) ON DELETE CASCADE,
    after    text NOT NULL DEFAULT ''
);

COMMENT ON TABLE queen.log_due_walks IS 'Queues whose options became stricter: their partitions get new due times, one after the other';
COMMENT ON COLUMN queen.log_due_walks.after IS 'Name of the last partition done';

CREATE TABLE queen.log_segments (
    partition_id uuid NOT NULL REFERENCES queen.log_partitions (id) ON DELETE CASCADE,
    base_offset  bigint NOT NULL,
    end_offset   bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    blob         bytea NOT NULL,
    PRIMARY KEY (partition_id, base_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_limit = 4000,
        toast.autovacuum_vacuum_scale_factor = 0.1, toast.autovacuum_vacuum_cost_limit = 4000);
ALTER TABLE queen.log_segments ALTER COLUMN blob SET STORAGE EXTERNAL;

COMMENT ON TABLE queen.log_segments IS 'The messages: one row holds the frames of offsets base_offset..end_offset, packed and compressed';
COMMENT ON COLUMN queen.log_segments.end_offset IS 'Inclusive; end_offset - base_offset + 1 messages';
COMMENT ON COLUMN queen.log_segments.created_at IS 'Stamped under the partition row lock: never decreases with base_offset';
COMMENT ON COLUMN queen.log_segments.blob IS 'zstd frame of length-prefixed frames; stored EXTERNAL because it is compressed already';

CREATE TABLE queen.log_txns (
    partition_id uuid NOT NULL,
    base_offset  bigint NOT NULL,
    end_offset   bigint NOT NULL,
    created_at   timestamptz NOT NULL,
    hashes       bytea NOT NULL,
    PRIMARY KEY (partition_id, base_offset)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_limit = 4000,
        toast.autovacuum_vacuum_scale_factor = 0.1, toast.autovacuum_vacuum_cost_limit = 4000);
ALTER TABLE queen.log_txns ALTER COLUMN hashes SET STORAGE EXTERNAL;

COMMENT ON TABLE queen.log_txns IS 'Hash sidecar, one row per segment: what deduplication probes and how an ack finds its offset. No foreign key: its purge must not pay for one';
COMMENT ON COLUMN queen.log_txns.hashes IS '16 bytes per frame, in frame order: xxh3_128 of the transaction id, big-endian; STORAGE EXTERNAL because hashes do not compress';

CREATE TABLE queen.log_consumers (
    partition_id      uuid NOT NULL REFERENCES queen.log_partitions (id) ON DELETE CASCADE,
    consumer_group    text NOT NULL,
    committed         bigint NOT NULL DEFAULT -1,
    batch_end         bigint,
    worker_id         uuid,
    lease_expires_at  timestamptz,
    lease_acquired_at timestamptz,
    batch_retry_count int NOT NULL DEFAULT 0,
    attempt_offset    bigint,
    attempt_count     int NOT NULL DEFAULT 0,
    total_consumed    bigint NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (partition_id, consumer_group)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        vacuum_truncate = off);

COMMENT ON TABLE queen.log_consumers IS 'Cursor and lease of one consumer group on one partition';
COMMENT ON COLUMN queen.log_consumers.consumer_group IS '__QUEUE_MODE__ for consumers that name no group';
COMMENT ON COLUMN queen.log_consumers.committed IS 'The cursor: everything at or below it is done';
COMMENT ON COLUMN queen.log_consumers.batch_end IS 'Inclusive end of the leased batch (committed, batch_end]; NULL when nothing is leased';
COMMENT ON COLUMN queen.log_consumers.worker_id IS 'The leaseId that the client was given';
COMMENT ON COLUMN queen.log_consumers.lease_acquired_at IS 'When the current or the last lease was claimed';
COMMENT ON COLUMN queen.log_consumers.batch_retry_count IS 'Retry budget used; charged only by an explicit failed ack';
COMMENT ON COLUMN queen.log_consumers.attempt_offset IS 'First offset of the last delivered batch';
COMMENT ON COLUMN queen.log_consumers.attempt_count IS 'How many times in a row that same offset came first; telemetry, never the retry budget';
COMMENT ON COLUMN queen.log_consumers.total_consumed IS 'Offsets passed by acks, auto-acks, drops and dead letters';

CREATE TABLE queen.log_dlq (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    partition_id   uuid NOT NULL,
    consumer_group text NOT NULL,
    "offset"       bigint NOT NULL,
    message_id     uuid,
    transaction_id text,
    payload        bytea,
    error          text NOT NULL,
    retry_count    int NOT NULL DEFAULT 0,
    failed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    flags          smallint NOT NULL DEFAULT 0,
    producer_sub   text
);
CREATE INDEX log_dlq_partition_idx ON queen.log_dlq (partition_id, failed_at DESC);
CREATE INDEX log_dlq_offset_idx ON queen.log_dlq (partition_id, "offset");

COMMENT ON TABLE queen.log_dlq IS 'Dead letters; retention never removes them, deleting the queue does';
COMMENT ON COLUMN queen.log_dlq.message_id IS 'NULL when the message could not be read: a corrupt or deleted segment';
COMMENT ON COLUMN queen.log_dlq.payload IS 'The payload bytes as they lie in the frame; bytea because jsonb refuses some valid JSON';
COMMENT ON COLUMN queen.log_dlq.retry_count IS 'Retry budget that was used when the message was filed';
COMMENT ON COLUMN queen.log_dlq.flags IS 'Frame flags: 4 says that payload is an encryption envelope';
COMMENT ON COLUMN queen.log_dlq.producer_sub IS 'Subject of the token that pushed it, from the frame';

CREATE TABLE queen.consumer_groups_metadata (
    tenant_id              uuid NOT NULL,
    consumer_group         text NOT NULL,
    queue_id               uuid REFERENCES queen.queues (id) ON DELETE CASCADE,
    partition_name         text NOT NULL DEFAULT '',
    namespace              text NOT NULL DEFAULT '',
    task                   text NOT NULL DEFAULT '',
    subscription_mode      text NOT NULL,
    subscription_timestamp timestamptz NOT NULL,
    existing_from          timestamptz,
    created_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant_id, consumer_group, queue_id, partition_name)
);
-- Four names of 255 characters of 4 bytes are more than an index entry can hold.
CREATE UNIQUE INDEX consumer_groups_metadata_labels_uk
    ON queen.consumer_groups_metadata (tenant_id, consumer_group, hashtextextended(namespace, 0),
                                       hashtextextended(task, 0))
    WHERE queue_id IS NULL;
CREATE INDEX consumer_groups_metadata_queue_idx
    ON queen.consumer_groups_metadata (queue_id, consumer_group, partition_name);

COMMENT ON TABLE queen.consumer_groups_metadata IS 'Durable subscriptions: where a group starts on partitions that it has not met';
COMMENT ON COLUMN queen.consumer_groups_metadata.queue_id IS 'NULL only for a subscription by namespace or task';
COMMENT ON COLUMN queen.consumer_groups_metadata.partition_name IS 'Empty: the whole queue; else a partition that the group looked for by name before it existed';
COMMENT ON COLUMN queen.consumer_groups_metadata.subscription_mode IS 'all, new or timestamp';
COMMENT ON COLUMN queen.consumer_groups_metadata.subscription_timestamp IS 'Start: the epoch for all, the registration time for new';
COMMENT ON COLUMN queen.consumer_groups_metadata.existing_from IS 'Start on partitions that are older than the subscription: before the stamp of any message that was on its way when the group subscribed. NULL: the same as on younger ones';

CREATE TABLE queen.consumer_watermarks (
    queue_id           uuid NOT NULL REFERENCES queen.queues (id) ON DELETE CASCADE,
    consumer_group     varchar(255) NOT NULL,
    last_empty_scan_at timestamptz NOT NULL DEFAULT 'epoch',
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (queue_id, consumer_group)
);

COMMENT ON TABLE queen.consumer_watermarks IS 'Lower bound of a group''s search for written partitions; deleted by whatever rewinds a cursor';
COMMENT ON COLUMN queen.consumer_watermarks.last_empty_scan_at IS 'No partition last written before this (less two minutes) has work for the group';
COMMENT ON COLUMN queen.consumer_watermarks.updated_at IS 'Last check; spaces the checks 30 seconds apart';

CREATE TABLE queen.retention_history (
    partition_id     uuid NOT NULL,
    messages_deleted bigint NOT NULL,
    retention_type   text NOT NULL,
    executed_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX retention_history_time_idx ON queen.retention_history (executed_at);

COMMENT ON TABLE queen.retention_history IS 'What retention deleted, one row per step';
COMMENT ON COLUMN queen.retention_history.partition_id IS 'No foreign key: rows outlive their partition';
COMMENT ON COLUMN queen.retention_history.messages_deleted IS 'Messages that the step deleted';
COMMENT ON COLUMN queen.retention_history.executed_at IS 'When it did';
COMMENT ON COLUMN queen.retention_history.retention_type IS 'retention, completed_retention, max_wait_time_eviction or __partition_deleted__';

CREATE TABLE queen.queue_history (
    queue_id           uuid NOT NULL,
    started_at         timestamptz NOT NULL,
    ended_at           timestamptz NOT NULL,
    pushes             bigint NOT NULL,
    push_messages      bigint NOT NULL,
    push_raw_bytes     bigint NOT NULL,
    push_bytes         bigint NOT NULL,
    duplicates         bigint NOT NULL,
    pops               bigint NOT NULL,
    empty_pops         bigint NOT NULL,
    pop_messages       bigint NOT NULL,
    leases             bigint NOT NULL,
    leases_expired     bigint NOT NULL,
    acks_completed     bigint NOT NULL,
    acks_failed        bigint NOT NULL,
    acks_retried       bigint NOT NULL,
    dead_letters       bigint NOT NULL,
    acks_dropped       bigint NOT NULL,
    retention_messages bigint NOT NULL,
    pop_lag            bigint NOT NULL,
    max_pop_lag        bigint NOT NULL,
    lag                bigint,
    parked             bigint NOT NULL,
    PRIMARY KEY (queue_id, ended_at)
);
CREATE INDEX queue_history_time_idx ON queen.queue_history (ended_at);

COMMENT ON TABLE queen.queue_history IS 'What the counters of a queue gained in one interval; no row where none of them moved and nobody waited. The counters are those of pg_stat_queen_queues';
COMMENT ON COLUMN queen.queue_history.queue_id IS 'No foreign key: rows outlive their queue, until their own age deletes them';
COMMENT ON COLUMN queen.queue_history.started_at IS 'Start of the interval; later than the end of the row before it when the queue was idle in between';
COMMENT ON COLUMN queen.queue_history.ended_at IS 'End of the interval, when lag and parked were taken';
COMMENT ON COLUMN queen.queue_history.max_pop_lag IS 'Longest that a message delivered in the interval had waited since it was pushed, milliseconds';
COMMENT ON COLUMN queen.queue_history.lag IS 'Messages pending, as the listing of queues counts them; NULL for a queue of more than 10,000 partitions';
COMMENT ON COLUMN queen.queue_history.parked IS 'Consumers waiting';

CREATE TABLE queen.queue_history_base (
    queue_id    uuid PRIMARY KEY,
    stats_reset timestamptz,
    counters    bigint[] NOT NULL,
    taken_at    timestamptz NOT NULL
);

COMMENT ON TABLE queen.queue_history_base IS 'Counters as of the last row of a queue''s history. The row of the nil UUID belongs to no queue: it has the time of the last step, and its lock keeps steps apart';
COMMENT ON COLUMN queen.queue_history_base.stats_reset IS 'Start of these counters; when it changed they started from zero';
COMMENT ON COLUMN queen.queue_history_base.counters IS 'In the order of the columns of queue_history';

CREATE TABLE queen.system_state (
    key        text PRIMARY KEY,
    value      jsonb NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE queen.system_state IS 'Flags shared by all front ends';

CREATE TABLE queen.message_traces (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id      uuid NOT NULL,
    partition_id   uuid NOT NULL,
    transaction_id varchar(255) NOT NULL,
    message_id     uuid,
    consumer_group text NOT NULL,
    event_type     text NOT NULL DEFAULT 'info',
    data           jsonb NOT NULL,
    worker_id      text,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX message_traces_message_idx ON queen.message_traces (partition_id, transaction_id, created_at);

CREATE TABLE queen.message_trace_names (
    trace_id   uuid NOT NULL REFERENCES queen.message_traces (id) ON DELETE CASCADE,
    trace_name text NOT NULL,
    tenant_id  uuid NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (trace_id, trace_name)
);
CREATE INDEX message_trace_names_name_idx
    ON queen.message_trace_names (tenant_id, trace_name, created_at);

COMMENT ON TABLE queen.message_traces IS 'Events that applications record about a message; never purged, they outlive message and queue';
COMMENT ON COLUMN queen.message_traces.partition_id IS 'As the application sent it: neither it nor the message has to exist';
COMMENT ON COLUMN queen.message_traces.message_id IS 'Reserved: a trace is keyed by partition and transaction id';
COMMENT ON COLUMN queen.message_traces.worker_id IS 'The front end that recorded it';
COMMENT ON TABLE queen.message_trace_names IS 'Names under which a trace event can be found';
COMMENT ON COLUMN queen.message_trace_names.tenant_id IS 'That of the trace, so that a page of a name is a range of the index';
COMMENT ON COLUMN queen.message_trace_names.created_at IS 'That of the trace, for the same reason';

CREATE TABLE queen.stream_queries (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    tenant_id    uuid NOT NULL,
    name         text NOT NULL,
    source_queue text NOT NULL,
    sink_queue   text,
    config_hash  text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant_id, name)
);

COMMENT ON TABLE queen.stream_queries IS 'Stream queries that clients have registered; the computing is theirs';
COMMENT ON COLUMN queen.stream_queries.source_queue IS 'By name, as the client gave it; nothing here depends on it';
COMMENT ON COLUMN queen.stream_queries.config_hash IS 'Fingerprint of the query; state that was computed under another one is of no use';

CREATE TABLE queen.stream_state (
    query_id     uuid NOT NULL REFERENCES queen.stream_queries (id) ON DELETE CASCADE,
    partition_id uuid NOT NULL REFERENCES queen.log_partitions (id),
    key_hash     bytea NOT NULL,
    key          text NOT NULL,
    value        text NOT NULL,
    window_end   double precision,
    updated_at   timestamptz NOT NULL,
    PRIMARY KEY (query_id, partition_id, key_hash)
);
CREATE INDEX stream_state_partition_idx ON queen.stream_state (partition_id);

COMMENT ON TABLE queen.stream_state IS 'What a stream query has computed so far, per partition of its source';
COMMENT ON COLUMN queen.stream_state.partition_id IS 'Its state keeps a partition from being cleaned up, and goes when its queue is deleted';
COMMENT ON COLUMN queen.stream_state.key_hash IS 'xxh3_128 of the key, which may be too long for an index';
COMMENT ON COLUMN queen.stream_state.value IS 'JSON as the client wrote it; text because jsonb refuses some valid JSON';
COMMENT ON COLUMN queen.stream_state.window_end IS 'The number windowEnd of the value, milliseconds since 1970; NULL when it has none';

-- All of it is user data: pg_dump leaves out what an extension owns unless it is registered.
DO $$
DECLARE
    relation text;
BEGIN
    FOREACH relation IN ARRAY ARRAY['queues', 'log_partitions', 'log_due', 'log_due_walks',
                                    'log_segments', 'log_txns', 'log_consumers', 'log_dlq',
                                    'consumer_groups_metadata', 'consumer_watermarks',
                                    'retention_history', 'queue_history', 'queue_history_base',
                                    'system_state', 'message_traces', 'message_trace_names',
                                    'stream_queries', 'stream_state'] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(
            pg_catalog.format('queen.%I', relation)::regclass, '');
    END LOOP;
END
$$;
