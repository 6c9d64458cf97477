/*
 * hooks.h
 *		Keeps the workers out of the way of commands on their database.
 */
#ifndef QUEEN_HOOKS_H
#define QUEEN_HOOKS_H

extern void hooks_init(void);

#endif
