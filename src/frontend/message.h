/*
 * message.h
 *		One pushed message, from the body of a request to a frame.
 */
#ifndef QUEEN_MESSAGE_H
#define QUEEN_MESSAGE_H

#include "body.h"
#include "frame.h"
#include "uuid.h"

struct Crypt;

typedef enum PushStatus
{
	PUSH_PENDING,
	PUSH_QUEUED,
	PUSH_DUPLICATE,
	PUSH_FAILED,
	PUSH_BUFFERED
} PushStatus;

/* The spans live as long as the request that brought the message. */
typedef struct PushItem PushItem;
struct PushItem
{
	PushItem *next;	   /* in its partition's list, or in its leader's */
	PushItem *repeats; /* same id, same segment: they share this one's fate */
	struct PushRequest *request;
	Span transaction_id;
	Span payload;
	Span producer_sub; /* ptr NULL: none */
	Uuid trace_id;
	bool has_trace;
	char *envelope; /* the payload encrypted, malloc'ed; NULL: it goes in clear */
	size_t envelope_len;
	Uuid message_id;
	uint8_t hash[16]; /* of the transaction id */
	PushStatus status;
	int http_status;			 /* of a failure */
	char *error;				 /* of a failure, malloc'ed */
	char id_text[UUID_TEXT_LEN]; /* message id, when it is the transaction id too */
};

/* A message of a request, and where it goes. */
typedef struct PushEntry
{
	PushItem item;
	Span queue, partition;
	int64_t leader;		  /* entry of the same request with the same id, -1: none */
	uint8_t identity[16]; /* hash of queue, partition and transaction id */
} PushEntry;

typedef struct PushEntries
{
	PushEntry *list;
	size_t n, cap;
} PushEntries;

/* NULL when there is no memory. */
extern PushEntry *push_entries_add(PushEntries *entries);
extern void push_entries_free(PushEntries *entries);

/* Reads a member if it is one of a message; *known tells. */
extern bool push_entry_member(Body *body, PushEntry *entry, const JsonValue *key, bool *known);

/* Reads a payload, which has a depth limit of its own. */
extern bool push_entry_payload(Body *body, const char *member, PushEntry *entry);

/* Whether the message is complete and its names are good; fills in the default partition. */
extern bool push_entry_check(Body *body, PushEntry *entry);

/*
 * Finds the entries of one partition with the same explicit id: the first
 * leads.  This works whatever the window, and also where a cap cuts the
 * segment between.
 */
extern void push_entries_link(PushEntries *entries);

/*
 * Gives the message its id, unless it has one, which is its transaction id
 * when it has none, and the hash of that.  From then on it must stay where it is.
 */
extern void push_item_mint(PushItem *item);

/* Encrypts the payload, once; false when there is no memory. */
extern bool push_item_seal(PushItem *item, struct Crypt *crypt);

extern Frame push_item_frame(const PushItem *item);

#endif
