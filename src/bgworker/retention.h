/*
 * retention.h
 *		Deletes old messages, unused partitions and what deleted queues left.
 */
#ifndef QUEEN_RETENTION_H
#define QUEEN_RETENTION_H

extern long retention_cycle(void);

#endif
