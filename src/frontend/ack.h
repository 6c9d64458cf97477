/*
 * ack.h
 *		POST /api/v1/ack and /api/v1/ack/batch
 */
#ifndef QUEEN_ACK_H
#define QUEEN_ACK_H

#include "http.h"

typedef struct Acks Acks;

extern Acks *acks_new(struct Worker *worker);
extern void acks_free(Acks *acks);
extern void ack_handler(Request *req);
extern void ack_batch_handler(Request *req);

/* Fails what another session has turned away for longer than a lock may be waited for. */
extern void acks_tick(Acks *acks);

/* Sends what is queued, as far as connections are free.  Once per turn of the loop. */
extern void acks_dispatch(Acks *acks);

#endif
