-- The sidecar is an index, the log is the truth: acks of messages that it has lost.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set consume :srcdir '/lib/consume.sql'
\set ECHO none
\i :segments
\i :consume
\set ECHO all
SELECT base_offset FROM pg_temp.push('q', 'p', 'a', 'b');
SELECT base_offset FROM pg_temp.push('q', 'p', 'c', 'd');
SELECT base_offset FROM pg_temp.push('q', 'p', 'e', 'f');

-- Without a live lease that the ack names, a purged id is unknown (V-47).
SELECT ids FROM pg_temp.pop('q');
SELECT pg_temp.purge_to('q', 'p', 4);
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{b}');
SELECT * FROM pg_temp.ack('q', 'p', NULL, '{b}', '{failed}');
SELECT * FROM pg_temp.cursors('q');
SELECT pg_temp.expire('q');
SELECT * FROM pg_temp.ack('q', 'p', 1, '{b}');

-- Under its lease it is found in the segments, together with what the sidecar still knows.
SELECT ids FROM pg_temp.pop('q', worker => 2, batch => 5);
SELECT * FROM pg_temp.ack('q', 'p', 2, '{b}');
SELECT * FROM pg_temp.cursors('q');
SELECT * FROM pg_temp.ack('q', 'p', 2, '{c,d,e,f,x}', '{completed,failed,completed,completed,completed}');
SELECT * FROM pg_temp.cursors('q');
-- Below the cursor, or beyond the batch, it stays unknown.
SELECT ids FROM pg_temp.pop('q', worker => 3, batch => 1);
SELECT * FROM pg_temp.ack('q', 'p', 3, '{a,f}');
SELECT * FROM pg_temp.ack('q', 'p', 3, '{d}');

-- The lowest occurrence in the batch counts, also when only the later one has its sidecar row.
SELECT queen.log_configure(pg_temp.tenant(), 'twice', NULL, NULL, '{"dedupWindowSeconds": 0}', 'merge') IS NOT NULL;
SELECT base_offset FROM pg_temp.push('twice', 'p', 'X', 'a', 'b');
SELECT base_offset FROM pg_temp.push('twice', 'p', 'c', 'd', 'X', 'e');
SELECT ids FROM pg_temp.pop('twice');
SELECT pg_temp.purge_to('twice', 'p', 3);
SELECT * FROM pg_temp.ack('twice', 'p', 1, '{X}');
SELECT committed, batch_end FROM pg_temp.cursors('twice');
SELECT * FROM pg_temp.ack('twice', 'p', 1, '{X}');
SELECT committed, batch_end, leased FROM pg_temp.cursors('twice');
SELECT * FROM pg_temp.ack('twice', 'p', 1, '{e}');

-- A corrupt segment is passed over, not raised: its neighbours are found.
SELECT base_offset FROM pg_temp.push('sick', 'p', 'a');
SELECT base_offset FROM pg_temp.push('sick', 'p', 'b');
SELECT ids FROM pg_temp.pop('sick');
SELECT pg_temp.purge_to('sick', 'p', 2), pg_temp.corrupt('sick', 'p', 0);
SELECT * FROM pg_temp.ack('sick', 'p', 1, '{a}');
SELECT * FROM pg_temp.ack('sick', 'p', 1, '{a,b}');
SELECT * FROM pg_temp.cursors('sick');

-- The other way round: segments are gone, the sidecar still resolves.
SELECT base_offset FROM pg_temp.push('gone', 'p', 'a', 'b');
SELECT ids FROM pg_temp.pop('gone');
SELECT pg_temp.retain_from('gone', 'p', 2);
SELECT * FROM pg_temp.ack('gone', 'p', 1, '{a}');
SELECT * FROM pg_temp.ack('gone', 'p', 1, '{b}');
SELECT * FROM pg_temp.cursors('gone');
