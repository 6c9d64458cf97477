/*
 * history.h
 *		Writes what the counters gained to the history table.
 */
#ifndef QUEEN_HISTORY_H
#define QUEEN_HISTORY_H

extern long history_cycle(void);

#endif
