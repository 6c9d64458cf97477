/*
 * span.h
 *		A run of bytes that somebody else owns.
 */
#ifndef QUEEN_SPAN_H
#define QUEEN_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct Span
{
	const char *ptr; /* NULL: absent */
	size_t len;
} Span;

#define SPAN_LITERAL(s) ((Span){(s), sizeof(s) - 1})

static inline Span
span_of(const char *s)
{
	return (Span){s, s ? strlen(s) : 0};
}

static inline bool
span_equals(Span a, Span b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

#endif
