/*
 * lease_map.h
 *		Which partitions a lease holds, so that its renewal does not search.
 *
 * Leases are entered when the transaction that grants or renews them commits.
 * The map may name too much: who renews looks at the cursors.  What it does not
 * know whole has to be searched for.
 */
#ifndef QUEEN_LEASE_MAP_H
#define QUEEN_LEASE_MAP_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* Shared memory. */
extern Size lease_map_shmem_size(void);
extern void lease_map_startup(int tranche);

/* Notes a lease of this database, or its new end. */
extern void lease_map_add(const pg_uuid_t *worker_id, const pg_uuid_t *partition_id,
						  TimestampTz expires_at);

#endif
