/*
 * ack.h
 *		Acknowledgements: what the parts of log_ack() share.
 *
 *		ack.c			the function: its arguments, the order, the locks, its rows
 *		ack_apply.c		one acknowledgement: what it comes to, and does
 */
#ifndef QUEEN_ACK_H
#define QUEEN_ACK_H

#include "postgres.h"

#include "utils/uuid.h"

#include "rows.h"
#include "sought.h"

/* The negative ones in order of strength: on one message the first counts. */
typedef enum AckStatus
{
	ACK_COMPLETED,
	ACK_DEAD_LETTER,
	ACK_FAILED,
	ACK_RETRY
} AckStatus;

struct AckCursor;

/* No refusal and not busy: success. */
typedef struct AckVerdict
{
	const char *refusal;
	bool lease_released;
	bool dead_lettered;
	bool noop;
	bool busy;
	bool more;
	struct AckCursor *acted_on; /* NULL: it had no effect */
} AckVerdict;

typedef struct AckItem
{
	const struct AckEntry *entry;
	text *transaction_id; /* NULL when it was */
	int64 offset;		  /* above the cursor: acts; not above: passed already; -1: not found */
	AckVerdict verdict;
} AckItem;

typedef struct AckEntry
{
	int number;		   /* counts from 0 */
	pg_uuid_t *tenant; /* like all these, NULL when it was */
	pg_uuid_t *partition;
	text *group;
	pg_uuid_t *worker;
	int call;
	AckStatus status;
	text *error;
	AckItem *items; /* those of the entries follow one another */
	int n;
} AckEntry;

/* The valid items of entries that belong together. */
typedef struct Ack
{
	const AckEntry *first;
	AckItem **items;
	int n;
} Ack;

typedef enum CursorState
{
	CURSOR_HELD,
	CURSOR_MISSING,
	CURSOR_BUSY
} CursorState;

typedef struct AckCursor
{
	Ack *acks;
	int n;
	CursorState state;
	pg_uuid_t *partition_id;
	text *group;

	/* of a cursor that is held */
	text *partition;
	pg_uuid_t queue_id;
	text *queue;
	int retry_limit;
	bool letters; /* what is exhausted becomes a dead letter */
} AckCursor;

typedef struct AckCall
{
	AckEntry *entries;
	AckEntry **sorted;
	int n;
	int n_sorted; /* without those that have no valid item */
	bool wait;

	LogTable *queues;
	LogTable *partitions;
	LogTable *consumers;
	TupleTableSlot *queue;
	TupleTableSlot *partition;
	TupleTableSlot *consumer;
	Search *search;
} AckCall;

/* ack_apply.c: does it.  The cursor is held, its rows are in the slots. */
extern void ack_apply(AckCall *call, AckCursor *cursor, const Ack *ack);

#endif
