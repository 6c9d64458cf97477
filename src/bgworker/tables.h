/*
 * tables.h
 *		The extension's tables for code that works on them without SQL.
 */
#ifndef QUEEN_TABLES_H
#define QUEEN_TABLES_H

#include "postgres.h"

#include "nodes/execnodes.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

typedef enum LogTableId
{
	QUEUES,
	PARTITIONS,
	DUE,
	SEGMENTS,
	TXNS,
	CONSUMERS,
	SUBSCRIPTIONS
} LogTableId;

#define LOG_TABLES (SUBSCRIPTIONS + 1)

typedef enum LogIndexId
{
	QUEUES_BY_ID,
	QUEUES_BY_NAME,		   /* tenant_id, name */
	PARTITIONS_BY_ID,	   /* id */
	PARTITIONS_BY_NAME,	   /* queue_id, name */
	PARTITIONS_BY_WRITE,   /* queue_id, last_write_at */
	DUE_BY_PARTITION,	   /* partition_id */
	SEGMENTS_BY_OFFSET,	   /* partition_id, base_offset */
	TXNS_BY_OFFSET,		   /* partition_id, base_offset */
	CONSUMERS_BY_GROUP,	   /* partition_id, consumer_group */
	SUBSCRIPTIONS_BY_QUEUE /* queue_id, consumer_group, partition_name */
} LogIndexId;

#define LOG_INDEXES (SUBSCRIPTIONS_BY_QUEUE + 1)

/* Columns, as far as C code needs them; the names are in tables.c, in the same order. */
enum
{
	QUEUES_ID,
	QUEUES_TENANT_ID,
	QUEUES_NAME,
	QUEUES_LEASE_TIME,
	QUEUES_RETRY_LIMIT,
	QUEUES_DEAD_LETTER_QUEUE,
	QUEUES_DLQ_AFTER_MAX_RETRIES,
	QUEUES_DELAYED_PROCESSING,
	QUEUES_WINDOW_BUFFER,
	QUEUES_MIN_POP_WAIT_TIME,
	QUEUES_ENCRYPTION_ENABLED,
	QUEUES_DEDUP_WINDOW_SECONDS,
	QUEUES_DELETED_AT
};

enum
{
	PARTITIONS_ID,
	PARTITIONS_QUEUE_ID,
	PARTITIONS_NAME,
	PARTITIONS_LAST_OFFSET,
	PARTITIONS_LOG_START,
	PARTITIONS_TXNS_START,
	PARTITIONS_LAST_WRITE_AT,
	PARTITIONS_CREATED_AT,
	PARTITIONS_LAST_CREATED_AT,
	PARTITIONS_SEGMENTS,
	PARTITIONS_BYTES
};

enum
{
	DUE_PARTITION_ID,
	DUE_RETENTION_AT,
	DUE_PURGE_AT,
	DUE_IDLE_SINCE
};

enum
{
	SEGMENTS_PARTITION_ID,
	SEGMENTS_BASE_OFFSET,
	SEGMENTS_END_OFFSET,
	SEGMENTS_CREATED_AT,
	SEGMENTS_BLOB
};

enum
{
	TXNS_PARTITION_ID,
	TXNS_BASE_OFFSET,
	TXNS_END_OFFSET,
	TXNS_CREATED_AT,
	TXNS_HASHES
};

enum
{
	CONSUMERS_PARTITION_ID,
	CONSUMERS_CONSUMER_GROUP,
	CONSUMERS_COMMITTED,
	CONSUMERS_BATCH_END,
	CONSUMERS_WORKER_ID,
	CONSUMERS_LEASE_EXPIRES_AT,
	CONSUMERS_LEASE_ACQUIRED_AT,
	CONSUMERS_BATCH_RETRY_COUNT,
	CONSUMERS_ATTEMPT_OFFSET,
	CONSUMERS_ATTEMPT_COUNT,
	CONSUMERS_TOTAL_CONSUMED,
	CONSUMERS_CREATED_AT
};

#define LOG_COLUMNS (QUEUES_DELETED_AT + 1) /* most that a table has here */

/* A table, open for one call. */
typedef struct LogTable
{
	LogTableId id;
	Relation rel;
	const AttrNumber *attnos;	   /* by column */
	Relation indexes[LOG_INDEXES]; /* open for scans; NULL: not yet */

	/* of a table that is open for writing, else NULL */
	EState *estate;
	ResultRelInfo *target;
	TupleTableSlot *draft; /* the row to be written */
} LogTable;

/*
 * Opens a table under a lock that stays until the transaction ends:
 * AccessShareLock to read, RowShareLock to lock rows, RowExclusiveLock to
 * write.  The latter two raise 25006 in a read-only transaction.  After an error
 * nothing has to be closed.
 */
extern LogTable *log_table_open(LogTableId id, LOCKMODE lock);
extern void log_table_close(LogTable *table);

/* One of the table's indexes, open until the table is closed. */
extern Relation log_table_index(LogTable *table, LogIndexId id);

#endif
