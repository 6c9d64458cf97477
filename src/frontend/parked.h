/*
 * parked.h
 *		Reports to the database how many pops are parked, for its statistics.
 */
#ifndef QUEEN_PARKED_H
#define QUEEN_PARKED_H

#include "waiters.h"

/* Once per tick; reports every few seconds, as long as there is something to tell. */
extern void parked_tick(struct Worker *worker, const Waiters *waiters);

#endif
