/*
 * inflight.h
 *		When it is time for another call beside those in flight.
 *
 * A commit costs the same for one entry as for many.  So beside calls in
 * flight another one starts only when it is at least as large; otherwise what is
 * ready goes on gathering until they return, or have taken so long that
 * something else must be in their way.
 */
#ifndef QUEEN_INFLIGHT_H
#define QUEEN_INFLIGHT_H

#include "clock.h"

#include <stdbool.h>

#define SLOW_CALL_MS 100

typedef struct InFlight
{
	int n;			   /* entries in calls of this kind */
	int64_t last_sent; /* monotonic milliseconds */
} InFlight;

static inline void
inflight_sent(InFlight *flight, int n)
{
	flight->n += n;
	flight->last_sent = clock_ms();
}

static inline void
inflight_answered(InFlight *flight, int n)
{
	flight->n -= n;
}

static inline bool
inflight_worth_a_call(const InFlight *flight, int ready)
{
	return ready >= flight->n || clock_ms() - flight->last_sent > SLOW_CALL_MS;
}

#endif
