-- Hashes, frames and segments as SQL sees them.
\getenv srcdir PG_ABS_SRCDIR
\set segments :srcdir '/lib/segments.sql'
\set ECHO none
\i :segments
\set ECHO all

-- Hash: xxh3_128, seed 0, big-endian.
SELECT t.id, queen.log_hash(t.id)
  FROM (VALUES (''), ('t1'), ('t2'), ('grüß'), ('0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b')) AS t (id);
SELECT queen.log_hash(repeat('z', 300));

-- Frame: the two vectors, and what comes out of them.
\set f1 '\\x1c00000000101112131415161718191a1b1c1d1e1f020074317b226e223a317d'
\set f2 '\\x2c00000003202122232425262728292a2b2c2d2e2fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf0200743203007376635b5d'
SELECT pg_temp.frame('t1', '{"n":1}', '10111213-1415-1617-1819-1a1b1c1d1e1f') = :'f1' AS first,
       pg_temp.frame('t2', '[]', '20212223-2425-2627-2829-2a2b2c2d2e2f',
                     'a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf', 'svc') = :'f2' AS second;
SELECT pg_temp.segment(:'f1'::bytea || :'f2'::bytea) AS both \gset
SELECT n, f.flags, f.message_id, f.trace_id, f.transaction_id, f.producer_sub,
       convert_from(f.payload, 'UTF8') AS payload
  FROM generate_series(0, 1) AS n, queen.log_frame(:'both', n) AS f;
SELECT queen.log_segment_hashes(:'both') = queen.log_hash('t1') || queen.log_hash('t2') AS hashes;
SELECT queen.log_segment_error(:'both', 2) AS sound, queen.log_segment_error(:'both', 3) AS three;
SELECT queen.log_segment_bytes(:'both', 2) = length(:'f1'::bytea || :'f2'::bytea) AS stated, queen.log_segment_bytes('\x0102', 1) AS none;

-- A blob as a compressor makes it, with a checksum: 40 messages, t0 to t39.
\set squeezed '\\x28b52ffd6424082d060002491d1c704f0ece709784598aaaaa532429292949bbdf1be9f5d75fc3358a1dffeeddccbbaa9988772c59febb7733efaa6622de3164f8efdecdbcab9a8978d7772d05fadfbd9b79573513f12eb320c85111453d15c7a29e495bcd6a97a72d096b56b430ac254004f27034180b45027130140803414a296d52a821ec0dfb7f06f035e61260206905ff1081436018e117fa01041130068f8021853f771808c341e800ac11f20987a26104850484f8fc64a71fa9e38398725b6f66bcbfbfdbfec8a725cfc92a5b0e1882'
SELECT queen.log_segment_error(:'squeezed', 40) AS error, f.transaction_id,
       convert_from(f.payload, 'UTF8') AS payload
  FROM queen.log_frame(:'squeezed', 39) AS f;
-- No flipped bit makes it decode to something else.
CREATE FUNCTION pg_temp.decoded(blob bytea) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(f::text, '' ORDER BY i) FROM generate_series(0, 39) AS i, queen.log_frame(blob, i) AS f;
$$;
SELECT count(*) > 1500 AS flips,
       count(*) FILTER (WHERE CASE WHEN queen.log_segment_error(flipped, 40) IS NULL
                                   THEN pg_temp.decoded(flipped) <> pg_temp.decoded(blob) END) AS silent
  FROM (SELECT blob, set_bit(blob, bit, 1 - get_bit(blob, bit)) AS flipped
          FROM (SELECT :'squeezed'::bytea AS blob) AS b,
               generate_series(0, 8 * length(blob) - 1) AS bit) AS f;

-- No such frame.
SELECT queen.log_frame(:'both', 2);
SELECT queen.log_frame(:'both', -1);

-- Bytes that are no UTF-8, and NUL, read as U+FFFD; overlong forms and surrogates are not UTF-8.
SELECT f.transaction_id, f.producer_sub
  FROM queen.log_frame(pg_temp.segment(pg_temp.frame('\x61ff00c0af62eda080', '', gen_random_uuid(),
                                                     NULL, '\xc3bcc3')), 0) AS f;

-- Unknown flags are ignored, an empty payload stays empty, an empty transaction id is one.
SELECT f.flags, f.trace_id, f.transaction_id = '' AS transaction_id, f.producer_sub, f.payload
  FROM queen.log_frame(pg_temp.segment(pg_temp.frame('', '', gen_random_uuid(), NULL, NULL, 244)),
                       0) AS f;

-- A segment with one bad frame is refused whole, also when another frame is asked for.
SELECT why, queen.log_segment_error(pg_temp.segment(raw), 1) AS error
  FROM (VALUES ('cut', substr(:'f1'::bytea, 1, 31)),
               ('bytes left over', :'f1'::bytea || '\x000000'),
               ('body too short', '\x1200000000' || decode(repeat('00', 17), 'hex')),
               ('length of the id', set_byte(:'f1'::bytea, 21, 200)),
               ('trace does not fit', '\x1300000001' || decode(repeat('00', 18), 'hex')),
               ('no subject', '\x1300000002' || decode(repeat('00', 18), 'hex')),
               ('empty', '')) AS t (why, raw);
SELECT why, queen.log_segment_error(blob, 2) IS NOT NULL AS corrupt
  FROM (VALUES ('empty', ''::bytea),
               ('not zstd', 'hello'),
               ('cut', substr(:'both'::bytea, 1, 50)),
               ('two zstd frames', :'both'::bytea || :'both'::bytea),
               ('claims 4 GiB', overlay(:'both'::bytea PLACING '\xffffffff' FROM 6 FOR 4)),
               ('claims one byte more', set_byte(:'both'::bytea, 5,
                                                 get_byte(:'both'::bytea, 5) + 1))) AS t (why, blob);
SELECT queen.log_frame(pg_temp.segment(:'f1'::bytea || '\x00'), 0);
SELECT queen.log_segment_hashes('nothing');
\set VERBOSITY sqlstate
SELECT queen.log_segment_hashes('nothing');
SELECT queen.log_frame('nothing', 0);
SELECT queen.log_frame(:'both', 2);
\set VERBOSITY default

-- Names.
SELECT n, queen.log_valid_name(v)
  FROM (VALUES ('empty', ''), ('ordinary', 'shop.orders'), ('longest', repeat('ü', 255)),
               ('too long', repeat('x', 256)), ('unit separator', E'a\x1fb'), ('line', E'a\n'),
               ('delete', E'\x7f'), ('space', ' '), ('null', NULL)) AS t (n, v);
