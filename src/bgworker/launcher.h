/*
 * launcher.h
 *		Keeps the workers of every database in queen.databases running.
 */
#ifndef QUEEN_LAUNCHER_H
#define QUEEN_LAUNCHER_H

extern void launcher_register(void);

#endif
