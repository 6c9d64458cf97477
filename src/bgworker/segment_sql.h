/*
 * segment_sql.h
 *		What the procedures in C have to know of a segment.
 */
#ifndef QUEEN_SEGMENT_SQL_H
#define QUEEN_SEGMENT_SQL_H

#include "postgres.h"

#include "utils/uuid.h"

/*
 * Bytes before compression, as the segment of that many messages states them;
 * its own length when it is corrupt: it states none, or more than several
 * messages may have together.
 */
extern int64 segment_bytes(const bytea *blob, int64 frames);

/* Whether every message is flagged as encrypted; false for a corrupt segment. */
extern bool segment_all_encrypted(const bytea *blob);

/* The message id of each of the n frames, palloc'd; NULL, with n = 0, for a corrupt segment. */
extern pg_uuid_t *segment_message_ids(const bytea *blob, int64 *n);

/*
 * The hash of every frame's transaction id, 16 bytes each, palloc'd; NULL when
 * the segment is corrupt or has another number of frames.
 */
extern uint8 *segment_hashes(const bytea *blob, int64 frames);

#endif
