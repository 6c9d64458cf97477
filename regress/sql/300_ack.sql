-- Ack of completed messages: the cursor, the lease, and what cannot be acknowledged.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b', 'c', 'd', 'e');
SELECT base_offset FROM pg_temp.push('q', 'p', 'f', 'g');

-- V-41: the third completes the first three and keeps the lease; what is left comes again after
-- the lease, as a redelivery.
SELECT ids FROM pg_temp.pop('q', batch => 4);
SELECT * FROM pg_temp.ack('q', 'p', 1, '{c}');
SELECT * FROM pg_temp.cursors('q');
SELECT pg_temp.expire('q');
SELECT * FROM pg_temp.pop('q', batch => 3, worker => 2);

-- V-40: acking only the last one completes the batch, releases the lease, resets the attempts.
SELECT * FROM pg_temp.ack('q', 'p', 2, '{f}');
SELECT * FROM pg_temp.cursors('q');

-- V-49: a completed ack below the cursor changes nothing and is a success; a negative one is not.
SELECT ids FROM pg_temp.pop('q', worker => 3);
SELECT * FROM pg_temp.ack('q', 'p', 3, '{a,b,c,d}', '{completed,failed,retry,dlq}');
SELECT * FROM pg_temp.cursors('q');

-- V-47: an unknown id fails by itself; the others count.
SELECT * FROM pg_temp.ack('q', 'p', 3, '{nobody}');
SELECT * FROM pg_temp.ack('q', 'p', 3, '{nobody}', '{failed}');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', 3, '{nobody,g}');
SELECT * FROM pg_temp.cursors('q');

-- V-48: beyond the leased batch nothing resolves.
SELECT base_offset FROM pg_temp.push('q', 'p', 'h', 'i');
SELECT ids FROM pg_temp.pop('q', batch => 1);
SELECT * FROM pg_temp.ack('q', 'p', 1, '{i,i}', '{completed,failed}');
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{i}');
SELECT * FROM pg_temp.cursors('q');

-- V-46: a wrong or expired lease id is refused and nothing changes; so is an id without a lease.
SELECT * FROM pg_temp.ack('q', 'p', 2, '{h}');
SELECT pg_temp.expire('q');
SELECT * FROM pg_temp.ack('q', 'p', 1, '{h,h}', '{completed,failed}');
SELECT * FROM pg_temp.cursors('q');
-- Without a lease id it works, also after the expiry.
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{h}');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', 1, '{h}');

-- Without a batch an ack may go to any offset, and a negative one has nothing to act on. It does
-- stop the cursor, though.
SELECT base_offset FROM pg_temp.push('q', 'p', 'j', 'k', 'l', 'm');
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{i,j,k,l}', '{completed,completed,failed,completed}');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{l}');
-- The expiry worker leaves the attempts when it clears a lease; passing the messages resets them.
SELECT ids FROM pg_temp.pop('q');
UPDATE queen.log_consumers SET worker_id = NULL, lease_expires_at = NULL, batch_end = NULL, batch_retry_count = 2
 WHERE partition_id = pg_temp.partition_id('q', 'p');
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{m}');
SELECT * FROM pg_temp.cursors('q');

-- V-51: offsets passed, each once, whoever passed them (V-50: and never back).
SELECT consumed = committed + 1 AS exact FROM pg_temp.cursors('q');

-- The order in a batch does not matter, repetitions neither; the highest completed counts.
SELECT base_offset FROM pg_temp.push('q', 'p', 'n', 'o', 'p');
SELECT ids FROM pg_temp.pop('q');
SELECT * FROM pg_temp.ack('q', 'p', 1, '{o,n,o}');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', 1, '{p}');

-- more: messages wait behind the cursor after the lease ended.
SELECT base_offset FROM pg_temp.push('q', 'p', 'q', 'r');
SELECT ids FROM pg_temp.pop('q', batch => 1);
SELECT released, more FROM pg_temp.ack('q', 'p', 1, '{q}');

-- An id that was used twice, outside of the window: the lowest offset that is not passed.
SELECT queen.log_configure(pg_temp.tenant(), 'twice', NULL, NULL, '{"dedupWindowSeconds": 0}', 'merge') -> 'configured';
SELECT base_offset FROM pg_temp.push('twice', 'p', 'x', 'y');
SELECT base_offset FROM pg_temp.push('twice', 'p', 'x', 'z');
SELECT ids FROM pg_temp.pop('twice');
SELECT * FROM pg_temp.ack('twice', 'p', 1, '{x}');
SELECT committed FROM pg_temp.cursors('twice');
SELECT * FROM pg_temp.ack('twice', 'p', 1, '{x}');
SELECT committed FROM pg_temp.cursors('twice');

-- A repeated ack is found however far below the cursor it lies.
DO $$ BEGIN FOR i IN 1..300 LOOP PERFORM pg_temp.push('far', 'p', 'm' || i, 'n' || i); END LOOP; END $$;
SELECT sum(last - first + 1) FROM pg_temp.pop('far', batch => 1000, auto => true);
SELECT * FROM pg_temp.ack('far', 'p', NULL, '{m1,m300,n150,m301}');
