/*
 * utf8.h
 *		UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, up to U+10FFFF.
 */
#ifndef QUEEN_UTF8_H
#define QUEEN_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the valid sequence at "s" (1..4), 0 when there is none. */
extern size_t utf8_sequence(const char *s, size_t len);

extern bool utf8_valid(const char *s, size_t len);

/* Number of characters of a valid text. */
extern size_t utf8_length(const char *s, size_t len);

#endif
