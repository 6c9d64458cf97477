/*
 * jansson_verdict.h
 *		What another JSON parser thinks of a text.
 *
 * A file of its own, since jansson's header and ours share names.
 */
#ifndef JANSSON_VERDICT_H
#define JANSSON_VERDICT_H

#include <stddef.h>

typedef enum JanssonVerdict
{
	JANSSON_ACCEPTS,
	JANSSON_REFUSES,
	JANSSON_CANNOT_HOLD /* valid, but a number or a key does not fit its types */
} JanssonVerdict;

extern JanssonVerdict jansson_verdict(const char *text, size_t len);

#endif
