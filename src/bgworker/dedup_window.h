/*
 * dedup_window.h
 *		What a backend remembers of the deduplication windows it pushed into.
 */
#ifndef QUEEN_DEDUP_WINDOW_H
#define QUEEN_DEDUP_WINDOW_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

#include "tables.h"

/* Rows of the sidecar whose base offsets have the same quotient are a block. */
#define DEDUP_BLOCK 64

/* Where the originals of a segment's messages may be. */
typedef struct Suspects
{
	bool anywhere; /* in all of the window */
	int64 *blocks; /* in these; in no order, and some may be there twice */
	int n;
	int room;
} Suspects;

/*
 * Looks for the n hashes in the partition's sidecar rows from offset txns_start
 * on that are stamped at or after "since".  A hash that is in none of the
 * suspects is in none of those rows.  The caller holds the partition, and the
 * active snapshot is younger than that lock.
 */
extern void dedup_window_search(LogTable *txns, const pg_uuid_t *partition_id, int64 txns_start,
								int64 last_offset, TimestampTz since, const uint8 *hashes, int n,
								Suspects *suspects);

/* The same caller has appended them: they need not be read. */
extern void dedup_window_add(const pg_uuid_t *partition_id, int64 base_offset, const uint8 *hashes,
							 int n);

extern void dedup_window_init(void);

#endif
