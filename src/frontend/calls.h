/*
 * calls.h
 *		The SQL functions that the front end calls: the whole of its use of the
 *		database (docs/internals.md).
 */
#ifndef QUEEN_CALLS_H
#define QUEEN_CALLS_H

#include <libpq-fe.h>

typedef enum CallId
{
	CALL_PROVISION,
	CALL_PUSH,
	CALL_POP,
	CALL_QUARANTINE,
	CALL_ACK,
	CALL_RENEW,
	CALL_RELEASE,
	CALL_CONFIGURE,
	CALL_DELETE_QUEUE,
	CALL_QUEUES,
	CALL_QUEUE,
	CALL_DLQ,
	CALL_PARKED,
	CALL_HEALTH,
	N_CALLS
} CallId;

#define CALL_MAX_PARAMS 12

typedef struct CallSpec
{
	const char *name; /* of the prepared statement */
	const char *sql;
	int n_params;
	Oid types[CALL_MAX_PARAMS];
} CallSpec;

extern const CallSpec call_specs[N_CALLS];

/* Columns of the answers, in the order of docs/internals.md. */
enum
{
	PUSH_ENTRY,
	PUSH_STATUS,
	PUSH_PARTITION_ID,
	PUSH_BASE_OFFSET,
	PUSH_CREATED_AT,
	PUSH_DUPLICATE_FRAMES,
	PUSH_DUPLICATE_IDS,
	PUSH_ERROR
};

enum
{
	POP_ENTRY,
	POP_STATUS,
	POP_PARTITION_ID,
	POP_PARTITION,
	POP_BASE_OFFSET,
	POP_END_OFFSET,
	POP_FIRST_OFFSET,
	POP_LAST_OFFSET,
	POP_CREATED_AT,
	POP_ATTEMPT,
	POP_BLOB,
	POP_RETRY_AT,
	POP_ERROR,
	POP_QUEUE_ID
};

enum
{
	ACK_ENTRY,
	ACK_SUCCESS,
	ACK_ERROR,
	ACK_LEASE_RELEASED,
	ACK_DLQ,
	ACK_NOOP,
	ACK_BUSY,
	ACK_QUEUE,
	ACK_PARTITION,
	ACK_MORE
};

enum
{
	DLQ_ID,
	DLQ_TRANSACTION_ID,
	DLQ_PARTITION_ID,
	DLQ_QUEUE,
	DLQ_PARTITION,
	DLQ_GROUP,
	DLQ_ERROR,
	DLQ_RETRY_COUNT,
	DLQ_FLAGS,
	DLQ_PAYLOAD,
	DLQ_PRODUCER_SUB,
	DLQ_FAILED_AT
};

#endif
