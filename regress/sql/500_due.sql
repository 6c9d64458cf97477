-- The due list: when a partition is to be visited, and who writes it.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set maintain :srcdir '/lib/maintain.sql'
\set ECHO none
\i :segments
\i :consume
\i :maintain
\set ECHO all
\set SHOW_CONTEXT never
-- A new partition holds nothing; its first message starts the sidecar's clock, and the second
-- changes nothing.
SELECT queen.log_provision(ARRAY[pg_temp.tenant()], '{q}', '{a}');
SELECT * FROM pg_temp.due('q');
SELECT status FROM pg_temp.push('q', 'a', 'm1');
SELECT * FROM pg_temp.due('q');
SELECT ctid AS before FROM queen.log_due \gset
SELECT status FROM pg_temp.push('q', 'a', 'm2');
SELECT ctid = :'before' AS untouched FROM queen.log_due;
-- A push that is rolled back leaves the list as it was.
BEGIN;
SELECT status FROM pg_temp.push('q', 'b', 'm1');
ROLLBACK;
SELECT * FROM pg_temp.due('q');

-- The time is that of the rule that comes first; a rule that is not enabled does not count, but
-- completed retention lengthens the sidecar's life all the same.
SELECT pg_temp.configure('r1', '{"retentionEnabled": true, "retentionSeconds": 3000}');
SELECT pg_temp.configure('r2', '{"retentionEnabled": true, "retentionSeconds": 5000, "completedRetentionSeconds": 4000}');
SELECT pg_temp.configure('r3', '{"retentionEnabled": false, "retentionSeconds": 30, "completedRetentionSeconds": 9000, "maxWaitTimeSeconds": 7000}');
SELECT pg_temp.configure('r4', '{"retentionSeconds": 30, "dedupWindowSeconds": 0}');
SELECT status FROM pg_temp.push('r1', 'p', 'm');
SELECT status FROM pg_temp.push('r2', 'p', 'm');
SELECT status FROM pg_temp.push('r3', 'p', 'm');
SELECT status FROM pg_temp.push('r4', 'p', 'm');
SELECT n.name, d.* FROM unnest('{r1,r2,r3,r4}'::text[]) AS n (name), pg_temp.due(n.name) AS d;

-- A change that makes something expire sooner walks over the queue's partitions, one per step;
-- any other change does not, and neither does a deletion.
SELECT status FROM pg_temp.push('q', 'b', 'm1');
SELECT status FROM pg_temp.push('q', 'c', 'm1');
SELECT pg_temp.configure('q', '{"retentionEnabled": true}');
SELECT pg_temp.configure('q', '{"completedRetentionSeconds": 5000}');
SELECT pg_temp.configure('q', '{"retryLimit": 9}');
SELECT count(*) FROM queen.log_due_walks;
SELECT * FROM queen.retention_step(1000);
SELECT * FROM pg_temp.due('q');
SELECT * FROM queen.retention_step(1000);
SELECT * FROM pg_temp.due('q');
-- Changed again underway: from the start.
SELECT pg_temp.configure('q', '{"retentionSeconds": 4000}');
SELECT * FROM queen.retention_step(1000);
SELECT * FROM pg_temp.due('q');
SELECT * FROM queen.retention_step(1000);
SELECT * FROM queen.retention_step(1000);
SELECT * FROM queen.retention_step(1000);
SELECT * FROM pg_temp.due('q');
SELECT * FROM queen.retention_step(1000);
SELECT count(*) FROM queen.log_due_walks;
SELECT pg_temp.configure('q', '{"retentionSeconds": 6000, "completedRetentionSeconds": 6000}');
SELECT queen.log_delete_queue(pg_temp.tenant(), 'r1');
SELECT count(*) FROM queen.log_due_walks;
SELECT pg_temp.configure('q', '{"completedRetentionSeconds": 0}');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.due('q');

-- A visit that comes too early finds out and sets the right time.
UPDATE queen.log_due SET retention_at = now() WHERE partition_id = pg_temp.partition_id('q', 'b');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.due('q');

-- When the log becomes empty nothing is due until the next push.
SELECT pg_temp.age('q', 'b', '2 hours');
SELECT * FROM pg_temp.due('q');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.purge();
SELECT * FROM pg_temp.due('q');
SELECT status FROM pg_temp.push('q', 'b', 'm2');
SELECT * FROM pg_temp.due('q');

-- A visit sets the next one a twentieth of the age ahead at least, so that rows go together.
SELECT status FROM pg_temp.push('q', 'b', 'm3');
SELECT pg_temp.age('q', 'b', '5990 seconds');
UPDATE queen.log_due SET retention_at = now() WHERE partition_id = pg_temp.partition_id('q', 'b');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.due('q');

-- What a group has not consumed is looked at again after a quarter of the time that it is overdue,
-- after an hour at most.
SELECT pg_temp.configure('w', '{"retentionEnabled": true, "completedRetentionSeconds": 1000}');
SELECT status FROM pg_temp.push('w', 'p', 'm');
SELECT pg_temp.age('w', 'p', '3000 seconds');
SELECT * FROM pg_temp.retain();
SELECT * FROM pg_temp.due('w');
SELECT pg_temp.age('w', 'p', '3 days');
SELECT * FROM pg_temp.retain();
SELECT retention FROM pg_temp.due('w');

-- Whatever deletes a partition deletes its row.
SELECT queen.log_delete_queue(pg_temp.tenant(), 'q');
SELECT queen.log_drain_step(1000) > 0;
SELECT count(*) FROM queen.log_due AS d WHERE NOT EXISTS (SELECT FROM queen.log_partitions WHERE id = d.partition_id);
