-- Maintenance by hand, for servers that do not preload the library: everything that is due, one
-- transaction per step, beside the background workers if they run.

-- Commits, and therefore has the caller's rights and no settings of its own.
CREATE PROCEDURE queen.maintain()
LANGUAGE plpgsql
AS $$
DECLARE
    max_rows int;
    again    boolean;
BEGIN
    PERFORM queen.log_guard();
    max_rows := pg_catalog.current_setting('queen.maintenance_batch');
    LOOP
        again := (SELECT s.more FROM queen.retention_step(max_rows) AS s);
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    LOOP
        again := (SELECT s.more FROM queen.sidecar_purge_step(max_rows) AS s);
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    LOOP
        again := (SELECT s.more FROM queen.lease_expiry_step(max_rows) AS s);
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    LOOP
        again := (SELECT s.more FROM queen.partition_cleanup_step(max_rows) AS s);
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    LOOP
        again := queen.log_drain_step(max_rows) > 0;
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
    LOOP
        again := (SELECT s.more FROM queen.history_step(max_rows) AS s);
        COMMIT;
        EXIT WHEN NOT again;
    END LOOP;
END
$$;
COMMENT ON PROCEDURE queen.maintain() IS
    'Runs every maintenance step that is due and commits after each: retention, sidecar purge, lease expiry, partition clean-up, removal of deleted queues, history. Needs the owner''s rights, and cannot run inside a transaction block';
