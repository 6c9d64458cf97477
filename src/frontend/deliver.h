/*
 * deliver.h
 *		From leased segments to the JSON of a pop's answer.
 */
#ifndef QUEEN_DELIVER_H
#define QUEEN_DELIVER_H

#include "pop.h"

/* Turns rows [row, end) into the answer; ends with pop_reply() or pop_empty(). */
extern void deliver_begin(Pop *pop, PopRows *rows, int row, int end);

/* Gives back the leases of an answer that nobody will read. */
extern void deliver_release(Pop *pop);

extern void deliver_free(Pop *pop);
extern void deliver_rows_release(PopRows *rows);

#endif
