/*
 * spoolfile.c
 *		A file of the front end's spool.
 */
#include "spoolfile.h"

#include "hash.h"
#include "take.h"

#include <assert.h>
#include <endian.h>

#define ID_SIZE 16
#define CHECKSUM_SIZE 16

static const char magic[8] = "QNSPOOL1";

void
spool_header_write(uint8_t dst[SPOOL_HEADER_SIZE], uint64_t stored)
{
	uint64_t le = htole64(stored);

	memcpy(dst, magic, sizeof(magic));
	memcpy(dst + sizeof(magic), &le, sizeof(le));
}

bool
spool_header_read(const uint8_t *file, size_t size, uint64_t *stored)
{
	uint64_t le;

	if (size < SPOOL_HEADER_SIZE || memcmp(file, magic, sizeof(magic)) != 0)
		return false;
	memcpy(&le, file + sizeof(magic), sizeof(le));
	*stored = le64toh(le);
	return *stored >= SPOOL_HEADER_SIZE && *stored <= size;
}

/* --- writing ---------------------------------------------------------------- */

static void
append_text(Buf *out, Span text)
{
	uint16_t le = htole16((uint16_t) text.len);

	assert(text.len <= UINT16_MAX);
	buf_append(out, &le, sizeof(le));
	buf_append(out, text.ptr, text.len);
}

void
spool_record_append(Buf *out, const SpoolRecord *record)
{
	static const uint8_t placeholder[SPOOL_RECORD_OVERHEAD];
	const Frame *frame = &record->frame;
	uint8_t flags = (frame->flags & FRAME_ENCRYPTED) | (frame->trace_id ? FRAME_TRACE : 0) |
					(frame->producer_sub.ptr ? FRAME_PRODUCER : 0);
	size_t start = out->len;
	uint32_t le;

	buf_append(out, placeholder, sizeof(placeholder));
	buf_append(out, record->tenant, ID_SIZE);
	buf_append(out, frame->message_id, ID_SIZE);
	buf_append(out, &flags, 1);
	if (frame->trace_id)
		buf_append(out, frame->trace_id, ID_SIZE);
	append_text(out, record->queue);
	append_text(out, record->partition);
	append_text(out, frame->transaction_id);
	if (frame->producer_sub.ptr)
		append_text(out, frame->producer_sub);
	buf_append(out, frame->payload.ptr, frame->payload.len);
	if (out->failed)
		return;
	le = htole32((uint32_t) (out->len - start - SPOOL_RECORD_OVERHEAD));
	memcpy(out->data + start, &le, sizeof(le));
	transaction_hash(out->data + start + SPOOL_RECORD_OVERHEAD,
					 out->len - start - SPOOL_RECORD_OVERHEAD,
					 (uint8_t *) out->data + start + sizeof(le));
}

/* --- reading ---------------------------------------------------------------- */

static bool
read_body(const uint8_t *pos, const uint8_t *end, SpoolRecord *record)
{
	Frame *frame = &record->frame;
	const uint8_t *flags;

	memset(record, 0, sizeof(*record));
	record->tenant = take(&pos, end, ID_SIZE);
	frame->message_id = take(&pos, end, ID_SIZE);
	flags = take(&pos, end, 1);
	if (record->tenant == NULL || frame->message_id == NULL || flags == NULL)
		return false;
	frame->flags = *flags;
	if (frame->flags & FRAME_TRACE)
	{
		frame->trace_id = take(&pos, end, ID_SIZE);
		if (frame->trace_id == NULL)
			return false;
	}
	if (!take_short_text(&pos, end, &record->queue) ||
		!take_short_text(&pos, end, &record->partition) ||
		!take_short_text(&pos, end, &frame->transaction_id))
		return false;
	if ((frame->flags & FRAME_PRODUCER) && !take_short_text(&pos, end, &frame->producer_sub))
		return false;
	frame->payload = (Span){(const char *) pos, (size_t) (end - pos)};
	return true;
}

SpoolRead
spool_record_read(const uint8_t *file, size_t size, uint64_t *offset, SpoolRecord *record)
{
	const uint8_t *start = file + *offset;
	size_t left = size - *offset;
	uint8_t checksum[CHECKSUM_SIZE];
	uint32_t len;

	if (left == 0)
		return SPOOL_END;
	if (left < SPOOL_RECORD_OVERHEAD)
		return SPOOL_TORN;
	memcpy(&len, start, sizeof(len));
	len = le32toh(len);
	if (len > left - SPOOL_RECORD_OVERHEAD)
		return SPOOL_TORN;
	transaction_hash(start + SPOOL_RECORD_OVERHEAD, len, checksum);
	if (memcmp(checksum, start + sizeof(len), CHECKSUM_SIZE) != 0 ||
		!read_body(start + SPOOL_RECORD_OVERHEAD, start + SPOOL_RECORD_OVERHEAD + len, record))
		return SPOOL_TORN;
	*offset += SPOOL_RECORD_OVERHEAD + len;
	return SPOOL_RECORD;
}
