/*
 * clock.h
 *		Time for intervals: it goes on when the wall clock steps back.
 */
#ifndef QUEEN_CLOCK_H
#define QUEEN_CLOCK_H

#include "postgres.h"

#include "portability/instr_time.h"

/* Milliseconds since some moment, the same for all processes. */
static inline int64
clock_ms(void)
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

/* Milliseconds until "when", 0 when it has passed. */
static inline long
clock_ms_until(int64 when)
{
	return (long) Max(when - clock_ms(), 0);
}

#endif
