/*
 * utf8.c
 *		UTF-8 as RFC 3629 has it.
 */
#include "utf8.h"

#include <stdint.h>
#include <string.h>

#define HIGH_BITS UINT64_C(0x8080808080808080)

static inline bool
is_continuation(unsigned char c)
{
	return (c & 0xC0) == 0x80;
}

/*
 * The second byte alone decides on overlong forms, surrogates and code points
 * above U+10FFFF, so its range depends on the first one.
 */
static inline bool
second_byte_fits(unsigned char first, unsigned char second)
{
	switch (first)
	{
		case 0xE0:
			return second >= 0xA0 && second <= 0xBF;
		case 0xED:
			return second >= 0x80 && second <= 0x9F;
		case 0xF0:
			return second >= 0x90 && second <= 0xBF;
		case 0xF4:
			return second >= 0x80 && second <= 0x8F;
		default:
			return is_continuation(second);
	}
}

size_t
utf8_sequence(const char *s, size_t len)
{
	const unsigned char *u = (const unsigned char *) s;
	size_t need;

	if (len == 0)
		return 0;
	if (u[0] < 0x80)
		return 1;

	if (u[0] >= 0xC2 && u[0] <= 0xDF)
		need = 2;
	else if (u[0] >= 0xE0 && u[0] <= 0xEF)
		need = 3;
	else if (u[0] >= 0xF0 && u[0] <= 0xF4)
		need = 4;
	else
		return 0;

	if (len < need || !second_byte_fits(u[0], u[1]))
		return 0;
	for (size_t i = 2; i < need; i++)
	{
		if (!is_continuation(u[i]))
			return 0;
	}
	return need;
}

bool
utf8_valid(const char *s, size_t len)
{
	while (len > 0)
	{
		uint64_t word = 0;
		size_t n = sizeof(word);

		/* Most text is ASCII: take it a word at a time. */
		if (len >= n)
			memcpy(&word, s, n);
		if (len < n || (word & HIGH_BITS))
			n = utf8_sequence(s, len);
		if (n == 0)
			return false;
		s += n;
		len -= n;
	}
	return true;
}

size_t
utf8_length(const char *s, size_t len)
{
	size_t chars = 0;

	for (size_t i = 0; i < len; i++)
		chars += !is_continuation((unsigned char) s[i]);
	return chars;
}
