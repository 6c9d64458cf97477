/*
 * function.h
 *		Declares a function that SQL calls.
 *
 * The library hides its symbols, so that the common code in it cannot clash
 * with another extension's; PostgreSQL 15 does not export these by itself.
 */
#ifndef QUEEN_FUNCTION_H
#define QUEEN_FUNCTION_H

#define QUEEN_FUNCTION(name)                                                                       \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS);                                               \
	PG_FUNCTION_INFO_V1(name)

#endif
