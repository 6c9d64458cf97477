-- One cursor from a gap to a dead letter, step by step.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
-- Offsets 0 to 3 are gone; segments 4..6 and 7..11; the group is at 6, its retry limit is 3.
SELECT base_offset FROM pg_temp.push('q', 'p', 'm0', 'm1', 'm2', 'm3');
SELECT base_offset FROM pg_temp.push('q', 'p', 'm4', 'm5', 'm6');
SELECT base_offset FROM pg_temp.push('q', 'p', 'm7', 'm8', 'm9', 'm10', 'm11');
SELECT pg_temp.retain_from('q', 'p', 4);
SELECT ids FROM pg_temp.pop('q', batch => 3, auto => true);

SELECT * FROM pg_temp.pop('q', batch => 3, worker => 1);
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', 1, '{m8}');
SELECT * FROM pg_temp.cursors('q');

SELECT pg_temp.expire('q');
SELECT * FROM pg_temp.pop('q', worker => 2);
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', 2, '{m9,m10,m11}', '{completed,failed,completed}');
SELECT * FROM pg_temp.cursors('q');

SELECT * FROM pg_temp.pop('q', worker => 3);
SELECT * FROM pg_temp.ack('q', 'p', 3, '{m10}', '{failed}');
SELECT * FROM pg_temp.pop('q', worker => 4);
SELECT * FROM pg_temp.ack('q', 'p', 4, '{m10}', '{failed}');
SELECT * FROM pg_temp.pop('q', worker => 5);
SELECT * FROM pg_temp.ack('q', 'p', 5, '{m10}', '{failed}');
SELECT "offset", transaction_id, retry_count FROM queen.log_dlq WHERE partition_id = pg_temp.partition_id('q', 'p');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.pop('q', worker => 6);
