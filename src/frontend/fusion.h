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

#include "message.h"

struct Worker;
typedef struct Fusion Fusion;

extern Fusion *fusion_new(struct Worker *worker);
extern void fusion_free(Fusion *fusion);

/*
 * Takes the message, gives it its id, and ends with push_item_decided(), not
 * before the message is committed.
 */
extern void fusion_add(Fusion *fusion, const Uuid *tenant, Span queue, Span partition,
					   PushItem *item);

/* The spool has tried to keep the message, and has set its status if it did. */
extern void fusion_spooled(PushItem *item);

/* Sends whatever is ready, as far as connections are free.  Once per turn of the loop. */
extern void fusion_dispatch(Fusion *fusion);

/* Fails what another session has turned away for longer than a lock may be waited for. */
extern void fusion_tick(Fusion *fusion);

/* True when nothing is gathered or in flight. */
extern bool fusion_idle(const Fusion *fusion);

#endif
