-- The tables as the storage model wants them, and the rules that every object of the schema keeps.

-- V-09: the messages have one index, their primary key, and no blob is compressed again.
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'queen.log_segments'::regclass;
SELECT attrelid::regclass, attname
  FROM pg_attribute
 WHERE attrelid IN ('queen.log_segments'::regclass, 'queen.log_txns'::regclass)
   AND attstorage = 'e'
 ORDER BY 1;

-- Churn: room on the page for HOT updates, vacuum by count, and no truncation.
SELECT relname, unnest(reloptions) AS option
  FROM pg_class
 WHERE relname IN ('log_partitions', 'log_consumers') AND relnamespace = 'queen'::regnamespace
 ORDER BY 1, 2;

-- The sidecar has no foreign key; segments and cursors go with their partition.
SELECT conrelid::regclass, confrelid::regclass, confdeltype
  FROM pg_constraint
 WHERE contype = 'f' AND connamespace = 'queen'::regnamespace
 ORDER BY conrelid::regclass::text COLLATE "C";

-- Every index by name: a new one is a decision.
SELECT c.relname
  FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
 WHERE c.relnamespace = 'queen'::regnamespace
 ORDER BY c.relname COLLATE "C";

-- Every table and function has a comment, and so has every option of a queue, and every column that
-- others than the owner may read.
SELECT c.oid::regclass
  FROM pg_class AS c
 WHERE c.relnamespace = 'queen'::regnamespace AND c.relkind IN ('r', 'v', 'c')
   AND coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')) IS NULL;
SELECT p.oid::regprocedure
  FROM pg_proc AS p
 WHERE p.pronamespace = 'queen'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL;
SELECT attname
  FROM pg_attribute
 WHERE attrelid = 'queen.queues'::regclass AND attname <> 'id' AND attnum > 0
   AND col_description(attrelid, attnum) IS NULL;
SELECT c.oid::regclass, a.attname
  FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
 WHERE c.relnamespace = 'queen'::regnamespace AND has_table_privilege('queen_monitor', c.oid, 'SELECT')
   AND col_description(c.oid, a.attnum) IS NULL;

-- A function that runs with its owner's rights does not look at the caller's search path.
SELECT p.oid::regprocedure
  FROM pg_proc AS p
 WHERE p.pronamespace = 'queen'::regnamespace AND p.prosecdef
   AND NOT 'search_path=pg_catalog, queen, pg_temp' = ANY (coalesce(p.proconfig, '{}'));

-- CREATE EXTENSION leaves no rows behind that a dump would restore twice; every table is dumped.
SELECT c.relname
  FROM pg_class AS c
 WHERE c.relnamespace = 'queen'::regnamespace AND c.relkind = 'r'
   AND NOT c.oid = ANY ((SELECT extconfig FROM pg_extension WHERE extname = 'queen')::oid[]);
