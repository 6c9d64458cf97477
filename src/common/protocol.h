/*
 * protocol.h
 *		Numbers that the front end and the extension must agree on.
 */
#ifndef QUEEN_PROTOCOL_H
#define QUEEN_PROTOCOL_H

/* Version of the SQL functions described in docs/internals.md. */
#define QUEEN_PROTOCOL 1

/* A segment is cut at whichever comes first; one larger frame travels alone. */
#define SEGMENT_MAX_FRAMES 10000
#define SEGMENT_MAX_RAW (8 * 1024 * 1024)

/*
 * Upper bound for the decompressed size of any segment: the largest request
 * body plus the frame's own fields.  A blob that claims more is corrupt.
 */
#define SEGMENT_RAW_LIMIT (72 * 1024 * 1024)

#define HASH_SIZE 16 /* bytes per frame in log_txns.hashes */
#define NAME_MAX_CHARS 255
#define TRANSACTION_ID_MAX 65535 /* bytes; the frame's length field is u16 */

#define DEFAULT_TENANT "00000000-0000-0000-0000-000000000001"
#define DEFAULT_PARTITION "Default"
#define QUEUE_MODE_GROUP "__QUEUE_MODE__"

#endif
