-- Codec: hashes, frames and segments as SQL sees them, and the checks that all calls share.

DO $$
BEGIN
    -- The functions that run with the owner's rights look names up in this schema.
    IF NOT (SELECT r.rolsuper
              FROM pg_catalog.pg_namespace AS n
              JOIN pg_catalog.pg_roles AS r ON r.oid = n.nspowner
             WHERE n.nspname = 'queen') THEN
        RAISE EXCEPTION 'schema "queen" belongs to a role that is no superuser'
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'Drop the schema, or give it to a superuser.';
    END IF;
    -- Hashes are made of UTF-8 bytes by the front end and of database text by SQL callers.
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'queen needs a database with encoding UTF8'
            USING ERRCODE = 'feature_not_supported';
    END IF;
END
$$;

CREATE FUNCTION queen.log_guard() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_guard() IS
    'Raises 0A000 outside isolation level READ COMMITTED, and makes a later PREPARE TRANSACTION of this transaction fail with 0A000';

CREATE FUNCTION queen.log_hash(transaction_id text) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_hash(text) IS
    'Identity of a transaction id: xxh3_128 with seed 0, 16 bytes, big-endian';

CREATE FUNCTION queen.log_frame(blob bytea, frame int, OUT flags int, OUT message_id uuid,
                                OUT trace_id uuid, OUT transaction_id text, OUT producer_sub text,
                                OUT payload bytea)
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_frame(bytea, int) IS
    'Decodes one message of a segment. frame counts from 0. Flags: 1 trace id present, 2 producer subject present, 4 payload encrypted. Raises XX001 when the blob is corrupt, 22023 when it has no such frame';

CREATE FUNCTION queen.log_frames(blob bytea, first int, last int)
RETURNS TABLE (frame int, flags int, message_id uuid, trace_id uuid, transaction_id text,
               producer_sub text, payload bytea)
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_frames(bytea, int, int) IS
    'Messages first..last of a segment, counted from 0, as log_frame decodes them; no rows when the blob is corrupt';

CREATE FUNCTION queen.log_unpack(blob bytea, frames int, first int, last int)
RETURNS TABLE (frame int, message_id uuid, trace_id uuid, transaction_id text, producer_sub text,
               payload jsonb, payload_text text)
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_unpack(bytea, int, int, int) IS
    'Messages first..last, counted from 0, of a segment of that many frames; no row when it is corrupt. Where jsonb cannot hold a payload it is NULL and payload_text is its text, else payload_text is NULL';

CREATE FUNCTION queen.log_message_id() RETURNS uuid
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_message_id() IS
    'A new UUID of version 7; ascending within the session';

CREATE FUNCTION queen.log_pack(message_ids uuid[], transaction_ids text[], payloads jsonb[],
                               OUT frames int, OUT hashes bytea, OUT blob bytea)
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_pack(uuid[], text[], jsonb[]) IS
    'A segment of the first messages, as many as it takes: up to 10,000 or 8 MiB, one at least. frames says how many. Raises 22023 for arrays of unequal length or with NULLs, a payload that is longer than 64 MiB or nested deeper than 512 levels, and a transaction id that is not 1 to 65,535 bytes without control characters';

CREATE FUNCTION queen.log_segment_hashes(blob bytea) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_segment_hashes(bytea) IS
    'Hash of the transaction id of every frame, 16 bytes each, in frame order. Raises XX001 when the blob is corrupt';

CREATE FUNCTION queen.log_segment_error(blob bytea, frames int) RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_segment_error(bytea, int) IS
    'Says why blob is not a sound segment of that many frames; NULL when it is one';

CREATE FUNCTION queen.log_segment_bytes(blob bytea, frames bigint) RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_segment_bytes(bytea, bigint) IS
    'Bytes before compression of a segment of that many messages, as it states them; the length of blob when it states none, or more than 8 MiB for several messages';

CREATE FUNCTION queen.log_valid_name(name text) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION queen.log_valid_name(text) IS
    'Whether name may name a queue, a partition or a consumer group: at most 255 characters, no control characters; NULL for NULL. The caller refuses the empty name where it is not allowed';

CREATE FUNCTION queen.log_check_arrays(VARIADIC lengths int[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF (lengths[1] = ALL (lengths)) IS NOT TRUE THEN
        RAISE EXCEPTION 'argument arrays must not be null and must have the same length'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;
COMMENT ON FUNCTION queen.log_check_arrays(int[]) IS
    'Takes the cardinality of each argument array; raises 22023 unless they are equal and none is NULL';
