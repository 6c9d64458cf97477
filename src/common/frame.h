/*
 * frame.h
 *		One message as it lies inside a segment.
 *
 * Little-endian, in this order:
 *
 *	u32	body length (of all that follows)
 *	u8	flags
 *	16	message id
 *	16	trace id			only with FRAME_TRACE
 *	u16	length, transaction id
 *	u16	length, producer subject	only with FRAME_PRODUCER
 *	...	payload, the JSON bytes as the client sent them
 */
#ifndef QUEEN_FRAME_H
#define QUEEN_FRAME_H

#include "span.h"

#include <stdint.h>

#define FRAME_TRACE 1
#define FRAME_PRODUCER 2
#define FRAME_ENCRYPTED 4

/* Spans point into the buffer that was read, or to what is to be written. */
typedef struct Frame
{
	uint8_t flags;
	const uint8_t *message_id; /* 16 bytes, text order */
	const uint8_t *trace_id;   /* 16 bytes, or NULL */
	Span transaction_id;
	Span producer_sub; /* ptr NULL: none */
	Span payload;
} Frame;

typedef struct FrameReader
{
	const uint8_t *pos;
	const uint8_t *end;
	const char *error; /* set when frame_next() met a malformed frame */
} FrameReader;

/*
 * Bytes that frame_write() will write.  Flags for the optional fields follow
 * from trace_id and producer_sub; only FRAME_ENCRYPTED is taken from "flags".
 */
extern size_t frame_size(const Frame *frame);
extern void frame_write(uint8_t *dst, const Frame *frame);

/*
 * Reads the next frame.  False at the end of the buffer (error NULL) and at a
 * malformed frame (error set): then the whole segment is to be refused.
 * Unknown flag bits are ignored.
 */
extern void frame_reader_init(FrameReader *reader, const void *data, size_t len);
extern bool frame_next(FrameReader *reader, Frame *frame);

#endif
