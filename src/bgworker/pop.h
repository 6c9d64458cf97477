/*
 * pop.h
 *		Pops: what the parts of log_pop() share.
 *
 *		pop.c			the function: its arguments and its rows
 *		pop_search.c	finds the partitions that are worth a look
 *		pop_batch.c		claims a cursor, reads its batch, leases it
 *		pop_rare.c		what SQL functions do: subscriptions, first contacts,
 *						searches of the tables
 */
#ifndef QUEEN_POP_H
#define QUEEN_POP_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"

#include "pending.h"
#include "pop_columns.h"
#include "rows.h"
#include "worklist.h"

/* Until a row that another session holds is worth another look. */
#define CONTENTION_PAUSE_US (100 * INT64CONST(1000))

/* What was asked for, with the queue's settings that bear on it. */
typedef struct PopRequest
{
	int entry;
	pg_uuid_t tenant_id;
	pg_uuid_t queue_id;
	pg_uuid_t partition_id; /* if pinned */
	bool pinned;
	text *group;
	uint64 group_number; /* in the work lists */
	pg_uuid_t worker_id; /* if not auto_ack */
	int batch;			 /* messages */
	int max_partitions;	 /* <= 0: no limit */
	bool auto_ack;
	text *mode; /* NULL: all */
	bool from_time;
	TimestampTz start_at; /* if from_time */
	int64 lease;		  /* us */
	int64 delay;		  /* us; a segment is delivered when it is this old */
	int64 hold;			  /* us; an under-full batch is held until it is this old */
} PopRequest;

/* The tables and the result of one call. */
typedef struct PopCall
{
	LogTable *queues;
	LogTable *partitions;
	LogTable *segments;
	LogTable *consumers;
	LogTable *subscriptions;
	TupleTableSlot *queue;
	TupleTableSlot *partition;
	TupleTableSlot *segment;
	TupleTableSlot *covering; /* for look-ups of a segment */
	TupleTableSlot *cursor;
	TupleTableSlot *subscription;
	Tuplestorestate *rows;
	TupleDesc desc;
	int64 room; /* bytes before compression that still fit; then each further entry takes one
				   segment */
} PopCall;

/* One pop under way. */
typedef struct Pop
{
	PopCall *call;
	PopRequest request;
	int budget; /* messages that still fit */
	int64 room; /* bytes that still fit; the last segment may exceed them */
	int places; /* partitions that may still be served */
	PopCount count;
} Pop;

typedef enum PopOutcome
{
	POP_SERVED,
	POP_NOTHING, /* nothing pending, or no such partition */
	POP_LATER,	 /* leased, deferred, or another session is at it */
	POP_HELD	 /* deferred for this request, perhaps not for another one */
} PopOutcome;

typedef struct PopLook
{
	PopOutcome outcome;
	TimestampTz until; /* of POP_LATER and POP_HELD */
} PopLook;

/* pop_batch.c; "taken": the partition was taken off the work list, which does not name it now. */
extern PopLook pop_look(Pop *pop, const pg_uuid_t *partition_id, bool taken);

/* pop_search.c: serves the pop; returns when to look again after an empty one, or DT_NOEND. */
extern TimestampTz pop_any(Pop *pop);

/* pop_rare.c */
extern bool pop_subscribe(const PopRequest *request, text *named);
extern bool pop_first_contact(const PopRequest *request, const pg_uuid_t *partition_id);
extern int pop_find(const PopRequest *request, pg_uuid_t **partitions);
extern TimestampTz pop_retry_at(const PopRequest *request);
extern void pop_advance_watermark(const PopRequest *request, TimestampTz began);
extern bool pop_walk(const PopRequest *request, Walk *walk);

#endif
