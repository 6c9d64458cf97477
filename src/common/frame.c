/*
 * frame.c
 *		One message as it lies inside a segment.
 */
#include "frame.h"

#include "take.h"

#include <assert.h>

#define ID_SIZE 16
#define BODY_MIN (1 + ID_SIZE + 2) /* flags, message id, length of the transaction id */

static inline uint32_t
get_u16(const uint8_t *p)
{
	return (uint32_t) p[0] | (uint32_t) p[1] << 8;
}

static inline uint32_t
get_u32(const uint8_t *p)
{
	return get_u16(p) | get_u16(p + 2) << 16;
}

static inline uint8_t *
put_u16(uint8_t *p, size_t value)
{
	p[0] = (uint8_t) value;
	p[1] = (uint8_t) (value >> 8);
	return p + 2;
}

static inline uint8_t *
put_bytes(uint8_t *p, const void *data, size_t len)
{
	if (len > 0)
		memcpy(p, data, len);
	return p + len;
}

static inline uint8_t *
put_short_text(uint8_t *p, Span text)
{
	assert(text.len <= UINT16_MAX);
	return put_bytes(put_u16(p, text.len), text.ptr, text.len);
}

size_t
frame_size(const Frame *frame)
{
	size_t size = 4 + BODY_MIN + frame->transaction_id.len + frame->payload.len;

	if (frame->trace_id != NULL)
		size += ID_SIZE;
	if (frame->producer_sub.ptr != NULL)
		size += 2 + frame->producer_sub.len;
	return size;
}

void
frame_write(uint8_t *dst, const Frame *frame)
{
	size_t body = frame_size(frame) - 4;
	uint8_t flags = frame->flags & FRAME_ENCRYPTED;

	assert(body <= UINT32_MAX);
	if (frame->trace_id != NULL)
		flags |= FRAME_TRACE;
	if (frame->producer_sub.ptr != NULL)
		flags |= FRAME_PRODUCER;

	dst = put_u16(dst, body & 0xFFFF);
	dst = put_u16(dst, body >> 16);
	*dst++ = flags;
	dst = put_bytes(dst, frame->message_id, ID_SIZE);
	if (flags & FRAME_TRACE)
		dst = put_bytes(dst, frame->trace_id, ID_SIZE);
	dst = put_short_text(dst, frame->transaction_id);
	if (flags & FRAME_PRODUCER)
		dst = put_short_text(dst, frame->producer_sub);
	put_bytes(dst, frame->payload.ptr, frame->payload.len);
}

void
frame_reader_init(FrameReader *reader, const void *data, size_t len)
{
	reader->pos = data;
	reader->end = len > 0 ? reader->pos + len : reader->pos; /* an empty buffer may be NULL */
	reader->error = NULL;
}

static bool
read_body(const uint8_t *pos, const uint8_t *end, Frame *frame)
{
	*frame = (Frame){.flags = *pos++};
	frame->message_id = take(&pos, end, ID_SIZE);
	if (frame->flags & FRAME_TRACE)
	{
		frame->trace_id = take(&pos, end, ID_SIZE);
		if (frame->trace_id == NULL)
			return false;
	}
	if (!take_short_text(&pos, end, &frame->transaction_id))
		return false;
	if ((frame->flags & FRAME_PRODUCER) && !take_short_text(&pos, end, &frame->producer_sub))
		return false;
	frame->payload = (Span){(const char *) pos, (size_t) (end - pos)};
	return true;
}

/* After an error the position stays, so the next call meets the same error. */
bool
frame_next(FrameReader *reader, Frame *frame)
{
	size_t left = (size_t) (reader->end - reader->pos);
	const uint8_t *body;
	size_t len;

	if (left == 0)
		return false;
	if (left < 4)
	{
		reader->error = "bytes are left over after the last frame";
		return false;
	}

	len = get_u32(reader->pos);
	if (len < BODY_MIN)
	{
		reader->error = "a frame is too short";
		return false;
	}
	if (len > left - 4)
	{
		reader->error = "a frame runs past the end of the segment";
		return false;
	}

	body = reader->pos + 4;
	if (!read_body(body, body + len, frame))
	{
		reader->error = "a field runs past the end of its frame";
		return false;
	}
	reader->pos = body + len;
	return true;
}
