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

/*
 * False only when none of the n hashes is in the partition's sidecar rows from
 * offset txns_start on that are stamped at or after "since".  The caller
 * holds the partition, and the active snapshot is younger than that lock.
 */
extern bool dedup_window_suspects(LogTable *txns, const pg_uuid_t *partition_id, int64 txns_start,
								  int64 last_offset, TimestampTz since, const uint8 *hashes, int n);

/* The same caller has appended them: they need not be read. */
extern void dedup_window_add(const pg_uuid_t *partition_id, int64 base_offset, const uint8 *hashes,
							 int n);

extern void dedup_window_init(void);

#endif
