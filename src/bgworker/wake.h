/*
 * wake.h
 *		Tells the front ends which queues have something new.
 */
#ifndef QUEEN_WAKE_H
#define QUEEN_WAKE_H

#include "postgres.h"

#include "utils/uuid.h"

/*
 * Notes that a queue of this database has new messages or a released lease.  The
 * front end of that origin knows already; 0: none does.
 */
extern void wake_list_add(const pg_uuid_t *queue, int origin);

extern void wake_start(void);
extern long wake_cycle(void);

#endif
