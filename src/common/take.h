/*
 * take.h
 *		Takes fields off the front of a run of untrusted bytes.
 */
#ifndef QUEEN_TAKE_H
#define QUEEN_TAKE_H

#include "span.h"

#include <stdint.h>

/* Takes "len" bytes off; NULL when there are fewer. */
static inline const uint8_t *
take(const uint8_t **pos, const uint8_t *end, size_t len)
{
	const uint8_t *start = *pos;

	if ((size_t) (end - start) < len)
		return NULL;
	*pos = start + len;
	return start;
}

/* A text behind its length, a little-endian u16. */
static inline bool
take_short_text(const uint8_t **pos, const uint8_t *end, Span *text)
{
	const uint8_t *len = take(pos, end, 2);

	if (len == NULL)
		return false;
	text->len = (size_t) len[0] | (size_t) len[1] << 8;
	text->ptr = (const char *) take(pos, end, text->len);
	return text->ptr != NULL;
}

#endif
