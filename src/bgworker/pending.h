/*
 * pending.h
 *		What a transaction has to report once it commits.
 */
#ifndef QUEEN_PENDING_H
#define QUEEN_PENDING_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* A segment was stored in a partition. */
extern void pending_push(const pg_uuid_t *queue, const pg_uuid_t *partition, int64 messages,
						 int64 raw_bytes, int64 bytes);

/* Messages were refused as duplicates. */
extern void pending_duplicates(const pg_uuid_t *queue, int64 messages);

/* Adds to a counter of a queue (QueueCounter in stats.h). */
extern void pending_count(const pg_uuid_t *queue, int counter, int64 n);

/* What one pop returned. */
typedef struct PopCount
{
	int64 messages;
	int64 passed; /* of them acknowledged at once */
	int64 leases;
	int64 lag;	   /* ms since they were pushed, added up */
	int64 longest; /* of these */
} PopCount;

extern void pending_pop(const pg_uuid_t *queue, const PopCount *pop);

/* A lease, or its new end, for the lease expiry worker. */
extern void pending_lease(const pg_uuid_t *partition_id, const text *consumer_group,
						  TimestampTz expires_at, const pg_uuid_t *worker_id);

/* A lease was ended; "more": messages wait behind the cursor, which is locked. */
extern void pending_lease_done(const pg_uuid_t *queue, const pg_uuid_t *partition,
							   const char *group, Size group_len, bool more);

/* Makes sure that the current transaction's end is heard of. */
extern void pending_start(void);

#endif
