/*
 * require.h
 *		An invariant of a fuzz target; a broken one ends the process.
 */
#ifndef REQUIRE_H
#define REQUIRE_H

#include <stdio.h>
#include <stdlib.h>

#define require(condition)                                                                         \
	((condition)                                                                                   \
		 ? (void) 0                                                                                \
		 : (fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition), abort()))

#endif
