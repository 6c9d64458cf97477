-- The API for applications: queen_app may call exactly it, and touch no table.
SELECT p.proname, p.prosecdef, p.proconfig[1] AS search_path
  FROM pg_proc AS p
 WHERE p.pronamespace = 'queen'::regnamespace AND has_function_privilege('queen_app', p.oid, 'EXECUTE')
 ORDER BY p.proname COLLATE "C";
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = 'queen'::regnamespace AND c.relkind IN ('r', 'v', 'S', 'm')
   AND has_table_privilege('queen_app', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT has_schema_privilege('queen_app', 'queen', 'CREATE') AS may_create, pg_has_role('queen_app', 'queen_frontend', 'MEMBER') AS frontend;
-- Nobody else has it, the front end included.
SELECT count(*) FROM pg_proc AS p, pg_roles AS r
 WHERE p.pronamespace = 'queen'::regnamespace AND has_function_privilege('queen_app', p.oid, 'EXECUTE')
   AND r.rolname IN ('queen_frontend', 'queen_monitor') AND has_function_privilege(r.oid, p.oid, 'EXECUTE');

-- The whole of it works with these rights alone, and in the caller's role again afterwards.
SET ROLE queen_app;
SELECT status FROM queen.push('q', '1', transaction_id => 'a');
SELECT status FROM queen.push_many('q', '{2,3}', NULL, '{a,b}');
SELECT transaction_id, queen.renew(lease_id) > now() AS renewed, queen.ack(partition_id, transaction_id, lease_id) AS released FROM queen.pop('q');
SELECT transaction_id, queen.nack(partition_id, transaction_id, lease_id, status => 'dlq') AS dead FROM queen.pop('q');
SELECT transaction_id FROM queen.dead_letters('q');
SELECT consumer_group, lag FROM queen.lag('q');
SELECT queen.seek('q', NULL, 'infinity') AS partitions;
SELECT queen.configure('q') ->> 'leaseTime' AS lease;
SELECT queen.delete_queue('q');
SELECT current_user;
SELECT * FROM queen.queues;
SELECT * FROM queen.log_segments;
SELECT * FROM queen.log_push(NULL, NULL, NULL, NULL, NULL, NULL, true);
SELECT * FROM queen.api_provision('q', '{p}');
SELECT * FROM queen.log_unpack('\x00', 1, 0, 0);
CREATE FUNCTION queen.mine() RETURNS int LANGUAGE sql AS 'SELECT 1';
RESET ROLE;

-- A function or table of the caller's is never used in place of the extension's.
CREATE SCHEMA trap;
GRANT ALL ON SCHEMA trap TO queen_app;
SET ROLE queen_app;
CREATE FUNCTION trap.cardinality(anyarray) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0';
CREATE TEMP TABLE queues AS SELECT 1 AS id;
SET search_path = trap, pg_temp, queen, pg_catalog;
SELECT status FROM queen.push('q', '1', transaction_id => 'c');
SELECT transaction_id, queen.ack(partition_id, transaction_id, lease_id) AS released FROM queen.pop('q');
RESET search_path;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA trap CASCADE;
DROP TABLE pg_temp.queues;
TRUNCATE queen.queues, queen.log_txns, queen.log_dlq CASCADE;
