/*
 * unit.h
 *		What every unit test includes: cmocka, and the headers it wants first.
 */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define lengthof(array) (sizeof(array) / sizeof((array)[0]))

/*
 * A copy in an allocation of exactly that size, so that the address sanitizer
 * sees a read past the end.
 */
static inline void *
exact_copy(const void *data, size_t len)
{
	void *copy = malloc(len > 0 ? len : 1);

	assert_non_null(copy);
	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

#endif
