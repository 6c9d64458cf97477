/*
 * lease_inbox.h
 *		How new leases reach the lease expiry worker.
 */
#ifndef QUEEN_LEASE_INBOX_H
#define QUEEN_LEASE_INBOX_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

typedef struct LeaseRecord
{
	TimestampTz expires_at;
	pg_uuid_t partition_id;
	uint32 group_len;
	char consumer_group[FLEXIBLE_ARRAY_MEMBER];
} LeaseRecord;

/* Notes a lease of this database. */
extern void lease_inbox_add(const pg_uuid_t *partition_id, const char *consumer_group,
							Size group_len, TimestampTz expires_at);

/* For the worker: the process whose latch is set when something comes in. */
extern void lease_inbox_attach(void);

/*
 * Moves the records to "buffer", which has the size of the inbox, and returns
 * how many bytes they are.  "overflow" says that some are missing.
 */
extern uint32 lease_inbox_take(char *buffer, bool *overflow);

/*
 * Asks for the latch to be set by the next record; until then it is set only
 * when the inbox gets full.  False when there is something already.
 */
extern bool lease_inbox_await(void);

/* Steps through what was taken; NULL at the end. */
extern const LeaseRecord *lease_inbox_next(const char *buffer, uint32 used, uint32 *position);

#endif
