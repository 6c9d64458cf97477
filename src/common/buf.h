/*
 * buf.h
 *		Growable byte buffer on malloc.
 *
 * A failed allocation sets "failed" and turns later appends into no-ops, so
 * a caller may build a whole answer and check once at its end.
 */
#ifndef QUEEN_BUF_H
#define QUEEN_BUF_H

#include "span.h"

#include <stdint.h>

typedef struct Buf
{
	char *data;
	size_t len;
	size_t cap;
	bool failed;
} Buf;

extern bool buf_reserve(Buf *buf, size_t extra);
extern void buf_append(Buf *buf, const void *data, size_t len);
extern void buf_append_str(Buf *buf, const char *s);
extern void buf_append_char(Buf *buf, char c);
extern void buf_append_number(Buf *buf, uint64_t number); /* in decimal */
extern void buf_printf(Buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
extern void buf_reset(Buf *buf); /* keeps the memory */
extern void buf_free(Buf *buf);

#endif
