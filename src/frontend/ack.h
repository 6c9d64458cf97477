/*
 * ack.h
 *		POST /api/v1/ack and /api/v1/ack/batch
 */
#ifndef QUEEN_ACK_H
#define QUEEN_ACK_H

#include "body.h"
#include "uuid.h"

typedef struct Acks Acks;

typedef enum AckStatus
{
	ACK_COMPLETED,
	ACK_FAILED,
	ACK_RETRY,
	ACK_DEAD_LETTER
} AckStatus;

/* One message of an acknowledgement. */
typedef struct AckItem
{
	/* as asked */
	Span transaction_id; /* ptr NULL: missing */
	Span partition_text, lease_text, error_text, status_text;
	Span group; /* single form only; a batch has one group */
	AckStatus status;
	bool has_lease;
	Uuid partition_id, lease_id;

	/* as answered */
	bool decided;
	bool success, lease_released, dead_lettered, noop;
	char *error;
} AckItem;

extern Acks *acks_new(struct Worker *worker);
extern void acks_free(Acks *acks);
extern void ack_handler(Request *req);
extern void ack_batch_handler(Request *req);

/* Fails what another session has turned away for longer than a lock may be waited for. */
extern void acks_tick(Acks *acks);

/* How many requests are ready for the read lane, counted up to "max". */
extern int acks_ready(const Acks *acks, int max);

/* The next call for that lane, which is to be submitted; NULL: nothing is ready. */
extern struct DbCall *acks_next_call(Acks *acks);

/* Sends what may wait for a lock, as far as connections are free.  Once per turn of the loop. */
extern void acks_dispatch(Acks *acks);

/* Reads a member if it is one of an acknowledgement; *known tells. */
extern bool ack_item_member(Body *body, AckItem *item, const JsonValue *key, bool *known);

/* Reads the ids; NULL, or what is wrong with the item. */
extern const char *ack_item_check(AckItem *item);

/* The status as queen.log_ack knows it. */
extern const char *ack_status_name(AckStatus status);

#endif
