/*
 * pending.h
 *		What a transaction has to report once it commits.
 */
#ifndef QUEEN_PENDING_H
#define QUEEN_PENDING_H

#include "postgres.h"

#include "utils/uuid.h"

/* A segment was stored in a partition. */
extern void pending_push(const pg_uuid_t *queue, const pg_uuid_t *partition, int64 messages,
						 int64 raw_bytes, int64 bytes);

/* Messages were refused as duplicates. */
extern void pending_duplicates(const pg_uuid_t *queue, int64 messages);

/* Adds to a counter of a queue (QueueCounter in stats.h). */
extern void pending_count(const pg_uuid_t *queue, int counter, int64 n);

/* A lease was ended; "more": messages wait behind the cursor, which is locked. */
extern void pending_lease_done(const pg_uuid_t *queue, const pg_uuid_t *partition,
							   const char *group, Size group_len, bool more);

/* Makes sure that the current transaction's end is heard of. */
extern void pending_start(void);

#endif
