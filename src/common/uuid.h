/*
 * uuid.h
 *		UUIDs as 16 bytes in text order, and a version 7 generator.
 */
#ifndef QUEEN_UUID_H
#define QUEEN_UUID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UUID_TEXT_LEN 36

typedef struct Uuid
{
	uint8_t bytes[16];
} Uuid;

/*
 * A new version 7 UUID: 48-bit milliseconds, 12-bit counter, 62 random bits.
 * Strictly ascending within the process, over all threads and also when the
 * clock steps back: the counter then carries into the milliseconds.
 */
extern void uuid_v7(Uuid *out);

/* Lower case with hyphens; writes UUID_TEXT_LEN bytes, no NUL. */
extern void uuid_format(const Uuid *uuid, char *out);

/* Accepts the 36-character form in either case, nothing else. */
extern bool uuid_parse(const char *text, size_t len, Uuid *out);

#endif
