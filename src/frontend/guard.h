/*
 * guard.h
 *		Refuses requests whose framing is ambiguous.
 *
 * libmicrohttpd repairs some of what RFC 9112 calls an error; between two
 * servers that repair differently a request can be smuggled.  So whatever is
 * ambiguous is refused on the parsed header block, before anything else runs.
 * Not visible through the library, and so not refused here: NUL in a value or
 * in the target (which ends there), folded headers, a header without a name
 * (which is dropped), bare LF as a line end.  A malformed Content-Length,
 * chunk or request line never gets here: the library refuses it by itself, in
 * its own words.
 */
#ifndef QUEEN_GUARD_H
#define QUEEN_GUARD_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#define GUARD_MAX_HEADERS 100
#define GUARD_MAX_HEADER_BYTES (16 * 1024)

typedef struct GuardVerdict
{
	int status;				/* 0: fine */
	const char *error;		/* when status is set */
	int64_t content_length; /* -1: none */
	bool chunked;
} GuardVerdict;

extern GuardVerdict guard_check(struct MHD_Connection *connection, const char *version);

#endif
