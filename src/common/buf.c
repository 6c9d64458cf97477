/*
 * buf.c
 *		Growable byte buffer on malloc.
 */
#include "buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define BUF_MIN_CAP 256

/* Makes room for "extra" more bytes.  False when the buffer has failed, now or before. */
bool
buf_reserve(Buf *buf, size_t extra)
{
	size_t need;
	size_t cap;
	char *data;

	if (buf->failed)
		return false;
	if (extra <= buf->cap - buf->len)
		return true;

	if (extra > SIZE_MAX / 2 - buf->len)
	{
		buf->failed = true;
		return false;
	}
	need = buf->len + extra;
	cap = buf->cap < BUF_MIN_CAP ? BUF_MIN_CAP : buf->cap;
	while (cap < need)
		cap *= 2;

	data = realloc(buf->data, cap);
	if (data == NULL)
	{
		buf->failed = true;
		return false;
	}
	buf->data = data;
	buf->cap = cap;
	return true;
}

void
buf_append(Buf *buf, const void *data, size_t len)
{
	if (len == 0 || !buf_reserve(buf, len))
		return;
	memcpy(buf->data + buf->len, data, len);
	buf->len += len;
}

void
buf_append_str(Buf *buf, const char *s)
{
	buf_append(buf, s, strlen(s));
}

void
buf_append_char(Buf *buf, char c)
{
	if (!buf_reserve(buf, 1))
		return;
	buf->data[buf->len++] = c;
}

void
buf_append_number(Buf *buf, uint64_t number)
{
	char digits[20];
	char *start = digits + sizeof(digits);

	do
	{
		*--start = (char) ('0' + number % 10);
		number /= 10;
	} while (number > 0);
	buf_append(buf, start, (size_t) (digits + sizeof(digits) - start));
}

void
buf_printf(Buf *buf, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (len < 0)
	{
		buf->failed = true;
		return;
	}

	/* vsnprintf() writes a NUL, which is not counted in "len". */
	if (!buf_reserve(buf, (size_t) len + 1))
		return;
	va_start(args, fmt);
	vsnprintf(buf->data + buf->len, (size_t) len + 1, fmt, args);
	va_end(args);
	buf->len += (size_t) len;
}

void
buf_reset(Buf *buf)
{
	buf->len = 0;
	buf->failed = false;
}

void
buf_free(Buf *buf)
{
	free(buf->data);
	*buf = (Buf){0};
}
