/*
 * base64url.h
 *		Writes base64url without padding, to make tokens for tests.
 */
#ifndef BASE64URL_H
#define BASE64URL_H

#include "buf.h"

#include <stdint.h>

static inline void
base64url_append(Buf *out, const void *data, size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i += 3)
	{
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t bits = (uint32_t) bytes[i] << 16 | (n > 1 ? (uint32_t) bytes[i + 1] << 8 : 0) |
						(n > 2 ? bytes[i + 2] : 0);

		for (size_t digit = 0; digit <= n; digit++)
			buf_append_char(out, digits[bits >> (18 - 6 * digit) & 63]);
	}
}

#endif
