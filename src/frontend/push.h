/*
 * push.h
 *		POST /api/v1/push
 */
#ifndef QUEEN_PUSH_H
#define QUEEN_PUSH_H

#include "fusion.h"
#include "http.h"

extern void push_handler(Request *req);

/* Called by fusion.c when a message's fate is known; answers after the last one. */
extern void push_item_decided(PushItem *item);

#endif
