-- Roles and rights. PUBLIC gets nothing; of the tables only the histories can be
-- read by anybody but their owner.

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['queen_frontend', 'queen_app', 'queen_monitor'] LOOP
        -- Roles belong to the whole cluster: another database may have created them already.
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END
$$;

REVOKE ALL ON ALL TABLES IN SCHEMA queen FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA queen FROM PUBLIC;
REVOKE ALL ON SCHEMA queen FROM PUBLIC;

GRANT USAGE ON SCHEMA queen TO queen_frontend, queen_app, queen_monitor;
GRANT queen_monitor TO pg_monitor;

-- Exactly the calls of the front end; they run with the owner's rights.
GRANT EXECUTE ON FUNCTION
    queen.log_handshake,
    queen.log_provision,
    queen.log_push,
    queen.log_pop,
    queen.log_discover,
    queen.log_quarantine,
    queen.log_ack,
    queen.log_renew,
    queen.log_release,
    queen.log_parked
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_configure,
    queen.log_delete_queue,
    queen.log_transaction,
    queen.log_dlq,
    queen.log_dlq_purge,
    queen.log_dlq_delete,
    queen.log_dlq_letter,
    queen.log_replay,
    queen.log_messages,
    queen.log_message
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_maintenance,
    queen.log_set_maintenance,
    queen.log_push_spooled
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_stream_query,
    queen.log_stream_state,
    queen.log_stream_cycle
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_seek,
    queen.log_groups,
    queen.log_group,
    queen.log_lagging,
    queen.log_move_subscription,
    queen.log_delete_group,
    queen.log_refresh_statistics
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_trace,
    queen.log_traces,
    queen.log_traces_by_name,
    queen.log_trace_names
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_queues,
    queen.log_queue,
    queen.log_queue_depth,
    queen.log_labels,
    queen.log_overview,
    queen.log_status,
    queen.log_status_queues,
    queen.log_status_queue,
    queen.log_status_analytics,
    queen.log_metrics
TO queen_frontend;
GRANT EXECUTE ON FUNCTION
    queen.log_analytics_queue_lag,
    queen.log_analytics_queue_ops,
    queen.log_analytics_parked,
    queen.log_analytics_retention,
    queen.log_analytics_messages,
    queen.log_analytics_workload,
    queen.log_analytics_dlq,
    queen.log_analytics_liveness,
    queen.log_analytics_postgres
TO queen_frontend;

-- Exactly the API for applications; its helpers are not part of it.
GRANT EXECUTE ON FUNCTION
    queen.push,
    queen.push_many,
    queen.pop,
    queen.ack,
    queen.nack,
    queen.renew,
    queen.seek,
    queen.configure,
    queen.delete_queue,
    queen.lag,
    queen.dead_letters
TO queen_app;

-- The statistics. A view reads tables with its owner's rights, but calls functions with the
-- reader's.
GRANT SELECT ON
    queen.pg_stat_queen_workers,
    queen.pg_stat_queen_progress_retention,
    queen.pg_stat_queen_queues,
    queen.pg_stat_queen_consumers,
    queen.queue_history,
    queen.retention_history
TO queen_monitor;
GRANT EXECUTE ON FUNCTION
    queen.stat_preloaded,
    queen.stat_queues,
    queen.stat_workers,
    queen.stat_consumers
TO queen_monitor;
