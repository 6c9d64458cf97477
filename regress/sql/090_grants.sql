-- Rights: PUBLIC has none, the front end may make its calls and nothing else.

-- Nothing of the schema is PUBLIC's.
SELECT p.oid::regprocedure FROM pg_proc AS p
 WHERE p.pronamespace = 'queen'::regnamespace
   AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0);
SELECT c.oid::regclass, a.privilege_type FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
 WHERE c.relnamespace = 'queen'::regnamespace AND c.relkind IN ('r', 'v') AND a.grantee <> c.relowner
 ORDER BY c.relname COLLATE "C";
SELECT has_schema_privilege('public', 'queen', 'USAGE');

-- What the front end may call. All of it runs with the owner's rights.
SELECT p.proname, p.prosecdef
  FROM pg_proc AS p
 WHERE p.pronamespace = 'queen'::regnamespace AND has_function_privilege('queen_frontend', p.oid, 'EXECUTE')
 ORDER BY p.proname COLLATE "C";

SELECT rolname, rolcanlogin, rolsuper FROM pg_roles WHERE rolname IN ('queen_app', 'queen_frontend', 'queen_monitor') ORDER BY 1;
SELECT pg_has_role('pg_monitor', 'queen_monitor', 'MEMBER') AS monitor;

-- As the front end: the whole path works without a right on any table.
SET ROLE queen_frontend;
SELECT protocol FROM queen.log_handshake();
SELECT queen.log_provision(ARRAY['00000000-0000-0000-0000-000000000001']::uuid[], '{q}', '{p}');
SELECT status FROM queen.log_push(ARRAY['00000000-0000-0000-0000-000000000001']::uuid[], '{q}', '{p}', '{1}',
                                  ARRAY['\x99aa06d3014798d86001c324468d497f']::bytea[], ARRAY['\x01']::bytea[], true);
SELECT status FROM queen.log_push(ARRAY['00000000-0000-0000-0000-000000000001']::uuid[], '{q}', '{p}', '{1}',
                                  ARRAY['\x99aa06d3014798d86001c324468d497f']::bytea[], ARRAY['\x01']::bytea[], true);
SELECT queen.log_configure('00000000-0000-0000-0000-000000000001', 'q', NULL, NULL, '{}', 'merge') -> 'configured';
SELECT queen.log_queue('00000000-0000-0000-0000-000000000001', 'q') ->> 'name';
SELECT queen.log_delete_queue('00000000-0000-0000-0000-000000000001', 'q');
SELECT * FROM queen.log_segments;
SELECT * FROM queen.queues;
SELECT queen.log_frame('\x01', 0);
RESET ROLE;

-- A table, function or operator of the caller's is never used in place of the extension's.
CREATE SCHEMA trap;
GRANT ALL ON SCHEMA trap TO queen_frontend;
SET ROLE queen_frontend;
CREATE FUNCTION trap.cardinality(anyarray) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0';
CREATE TEMP TABLE queues AS SELECT 1 AS id;
SET search_path = trap, pg_temp, queen, pg_catalog;
SELECT queen.log_provision(ARRAY['00000000-0000-0000-0000-000000000001']::uuid[], '{q}', '{p}');
SELECT pg_catalog.count(*) FROM queen.log_push(ARRAY['00000000-0000-0000-0000-000000000001']::uuid[], '{q}', '{p}', '{1}',
                                  ARRAY['\x99aa06d3014798d86001c324468d497f']::bytea[], ARRAY['\x01']::bytea[], true);
RESET search_path;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA trap CASCADE;
DROP TABLE pg_temp.queues;
TRUNCATE queen.queues, queen.log_txns CASCADE;
