/*
 * guard.h
 *		Which transactions may write to the log.
 */
#ifndef QUEEN_GUARD_H
#define QUEEN_GUARD_H

/*
 * To be called first by every function that changes the log: an error outside
 * READ COMMITTED, and PREPARE TRANSACTION of this transaction will fail.
 */
extern void guard_write(void);

#endif
