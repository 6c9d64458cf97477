/*
 * duplicates.h
 *		Finds the messages of a segment that the log holds already.
 */
#ifndef QUEEN_DUPLICATES_H
#define QUEEN_DUPLICATES_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

#include "dedup_window.h"
#include "tables.h"

typedef struct Duplicates
{
	int n;
	int32 *frames;	/* of the segment, counted from 0, ascending */
	pg_uuid_t *ids; /* message ids of the originals; nil when it can no longer be read */
} Duplicates;

/*
 * Looks for the n hashes, which all differ, in those sidecar rows of the
 * partition that are suspects, from offset txns_start on and stamped at or
 * after "since".  Of several originals the one at the lowest offset counts.  The
 * caller holds the partition, and the active snapshot is younger than that lock.
 */
extern void duplicates_find(LogTable *txns, LogTable *segments, const pg_uuid_t *partition_id,
							int64 txns_start, TimestampTz since, const Suspects *suspects,
							const uint8 *hashes, int n, Duplicates *result);

#endif
