/*
 * fuzz_spoolfile.c
 *		Spool records on any bytes, as a file and as the body of a sound record.
 *
 * Invariant: a record that was read is written back as the same record.
 */
#include "hash.h"
#include "require.h"
#include "spoolfile.h"

#include <endian.h>

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
same_span(Span a, Span b)
{
	return (a.ptr == NULL) == (b.ptr == NULL) && span_equals(a, b);
}

static void
check_record(const SpoolRecord *record)
{
	uint64_t offset = 0;
	SpoolRecord again;
	Buf out = {0};

	spool_record_append(&out, record);
	require(!out.failed);
	require(spool_record_read((const uint8_t *) out.data, out.len, &offset, &again) ==
			SPOOL_RECORD);
	require(offset == out.len);
	require(memcmp(again.tenant, record->tenant, 16) == 0);
	require(memcmp(again.frame.message_id, record->frame.message_id, 16) == 0);
	require((again.frame.trace_id == NULL) == (record->frame.trace_id == NULL));
	require(same_span(again.queue, record->queue));
	require(same_span(again.partition, record->partition));
	require(same_span(again.frame.transaction_id, record->frame.transaction_id));
	require(same_span(again.frame.producer_sub, record->frame.producer_sub));
	require(span_equals(again.frame.payload, record->frame.payload));
	buf_free(&out);
}

static void
check_file(const uint8_t *file, size_t size)
{
	SpoolRecord record;
	uint64_t offset;

	if (!spool_header_read(file, size, &offset))
		offset = 0;
	while (spool_record_read(file, size, &offset, &record) == SPOOL_RECORD)
	{
		require(offset <= size);
		check_record(&record);
	}
}

static void
check_body(const uint8_t *body, size_t size)
{
	uint8_t *record = malloc(SPOOL_RECORD_OVERHEAD + size);
	uint32_t le = htole32((uint32_t) size);

	require(record != NULL);
	memcpy(record, &le, sizeof(le));
	transaction_hash(body, size, record + sizeof(le));
	if (size > 0)
		memcpy(record + SPOOL_RECORD_OVERHEAD, body, size);
	check_file(record, SPOOL_RECORD_OVERHEAD + size);
	free(record);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_file(data, size);
	check_body(data, size);
	return 0;
}
