/*
 * listeners.h
 *		Which sessions listen to wake-up notifications.
 */
#ifndef QUEEN_LISTENERS_H
#define QUEEN_LISTENERS_H

#include "postgres.h"

#define WAKE_CHANNEL "queen_wake"

/* Whether any session of this database wants to hear what one with that queen.wake_origin did. */
extern bool listeners_want(int origin);

/* Shared memory. */
extern Size listeners_shmem_size(void);
extern void listeners_startup(int tranche);

extern void listeners_init(void);

#endif
