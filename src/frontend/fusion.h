/*
 * fusion.h
 *		Gathers pushed messages into segments and sends them.
 *
 * Messages of one (tenant, queue, partition) gather in arrival order.  At most
 * one segment of a partition is in flight; what arrives meanwhile is the next
 * segment.  So the size of a segment follows the load, and a lone message
 * waits for nothing.
 */
#ifndef QUEEN_FUSION_H
#define QUEEN_FUSION_H

#include "span.h"
#include "uuid.h"

struct Worker;
typedef struct Fusion Fusion;
typedef struct PushItem PushItem;

typedef enum PushStatus
{
	PUSH_PENDING,
	PUSH_QUEUED,
	PUSH_DUPLICATE,
	PUSH_FAILED
} PushStatus;

/* One message.  The spans live as long as the request that brought it. */
struct PushItem
{
	PushItem *next;		 /* in its partition's list, or in its leader's */
	PushItem *followers; /* same id, same segment: they share this one's fate */
	struct PushRequest *request;
	Span transaction_id;
	Span payload;
	Span producer_sub; /* ptr NULL: none */
	char *envelope;	   /* the payload encrypted, malloc'ed; NULL: it goes in clear */
	size_t envelope_len;
	Uuid message_id;
	uint8_t hash[16]; /* of the transaction id */
	PushStatus status;
	int http_status;			 /* of a failure */
	char *error;				 /* of a failure, malloc'ed */
	char id_text[UUID_TEXT_LEN]; /* message id, when it is the transaction id too */
};

extern Fusion *fusion_new(struct Worker *worker);
extern void fusion_free(Fusion *fusion);

/*
 * Takes the message, gives it its id, and ends with push_item_decided(), not
 * before the message is committed.
 */
extern void fusion_add(Fusion *fusion, const Uuid *tenant, Span queue, Span partition,
					   PushItem *item);

/* Sends whatever is ready, as far as connections are free.  Once per turn of the loop. */
extern void fusion_dispatch(Fusion *fusion);

/* Fails what another session has turned away for longer than a lock may be waited for. */
extern void fusion_tick(Fusion *fusion);

/* True when nothing is gathered or in flight. */
extern bool fusion_idle(const Fusion *fusion);

#endif
