/*
 * test_spoolfile.c
 *		Records of the spool: what is written is read, and what is torn is seen.
 */
#include "unit.h"

#include "spoolfile.h"

static const uint8_t tenant[16] = "tenant 123456789";
static const uint8_t id[16] = "message 12345678";
static const uint8_t trace[16] = "trace 1234567890";

static SpoolRecord
record_of(Span payload, bool full)
{
	SpoolRecord record = {
		.tenant = tenant,
		.queue = SPAN_LITERAL("shop.orders"),
		.partition = SPAN_LITERAL("cust-17"),
		.frame = {.message_id = id, .transaction_id = SPAN_LITERAL("ord-1"), .payload = payload}};

	if (full)
	{
		record.frame.flags = FRAME_ENCRYPTED;
		record.frame.trace_id = trace;
		record.frame.producer_sub = SPAN_LITERAL("");
	}
	return record;
}

static void
assert_span(Span span, const char *text)
{
	assert_int_equal(span.len, strlen(text));
	assert_memory_equal(span.ptr, text, span.len);
}

static Buf
three_records(size_t ends[3])
{
	Buf file = {0};
	SpoolRecord records[] = {record_of(SPAN_LITERAL("{\"n\": 1}"), false),
							 record_of(SPAN_LITERAL("2"), true), record_of((Span){NULL, 0}, false)};

	buf_reserve(&file, SPOOL_HEADER_SIZE);
	spool_header_write((uint8_t *) file.data, SPOOL_HEADER_SIZE);
	file.len = SPOOL_HEADER_SIZE;
	for (int i = 0; i < 3; i++)
	{
		spool_record_append(&file, &records[i]);
		ends[i] = file.len;
	}
	return file;
}

static void
test_round_trip(void **state)
{
	size_t ends[3];
	Buf file = three_records(ends);
	const uint8_t *data = (const uint8_t *) file.data;
	SpoolRecord record;
	uint64_t offset;

	assert_true(spool_header_read(data, file.len, &offset));
	assert_int_equal(offset, SPOOL_HEADER_SIZE);
	assert_int_equal(spool_record_read(data, file.len, &offset, &record), SPOOL_RECORD);
	assert_int_equal(offset, ends[0]);
	assert_memory_equal(record.tenant, tenant, 16);
	assert_memory_equal(record.frame.message_id, id, 16);
	assert_span(record.queue, "shop.orders");
	assert_span(record.partition, "cust-17");
	assert_span(record.frame.transaction_id, "ord-1");
	assert_span(record.frame.payload, "{\"n\": 1}");
	assert_null(record.frame.trace_id);
	assert_null(record.frame.producer_sub.ptr);
	assert_int_equal(record.frame.flags, 0);

	assert_int_equal(spool_record_read(data, file.len, &offset, &record), SPOOL_RECORD);
	assert_memory_equal(record.frame.trace_id, trace, 16);
	assert_non_null(record.frame.producer_sub.ptr);
	assert_int_equal(record.frame.producer_sub.len, 0);
	assert_true(record.frame.flags & FRAME_ENCRYPTED);
	assert_span(record.frame.payload, "2");

	assert_int_equal(spool_record_read(data, file.len, &offset, &record), SPOOL_RECORD);
	assert_int_equal(record.frame.payload.len, 0);
	assert_int_equal(spool_record_read(data, file.len, &offset, &record), SPOOL_END);
	assert_int_equal(offset, file.len);
	buf_free(&file);
}

/* Cut anywhere, the records before the cut are read, and the rest is torn. */
static void
test_every_cut(void **state)
{
	size_t ends[3];
	Buf file = three_records(ends);

	for (size_t cut = SPOOL_HEADER_SIZE; cut < file.len; cut++)
	{
		uint8_t *copy = exact_copy(file.data, cut);
		uint64_t offset = SPOOL_HEADER_SIZE;
		SpoolRecord record;
		SpoolRead read;
		size_t n = 0;

		while ((read = spool_record_read(copy, cut, &offset, &record)) == SPOOL_RECORD)
			n++;
		assert_int_equal(n, (cut >= ends[0]) + (cut >= ends[1]));
		assert_int_equal(offset, n > 0 ? ends[n - 1] : SPOOL_HEADER_SIZE);
		assert_int_equal(read, cut == offset ? SPOOL_END : SPOOL_TORN);
		free(copy);
	}
	buf_free(&file);
}

static void
test_every_flipped_bit(void **state)
{
	size_t ends[3];
	Buf file = three_records(ends);

	for (size_t bit = 8 * SPOOL_HEADER_SIZE; bit < 8 * ends[0]; bit++)
	{
		uint8_t *copy = exact_copy(file.data, file.len);
		uint64_t offset = SPOOL_HEADER_SIZE;
		SpoolRecord record;

		copy[bit / 8] ^= (uint8_t) (1 << bit % 8);
		assert_int_equal(spool_record_read(copy, file.len, &offset, &record), SPOOL_TORN);
		assert_int_equal(offset, SPOOL_HEADER_SIZE);
		free(copy);
	}
	buf_free(&file);
}

static void
test_header(void **state)
{
	uint8_t header[SPOOL_HEADER_SIZE];
	uint64_t stored;

	spool_header_write(header, 4711);
	assert_true(spool_header_read(header, 4711, &stored));
	assert_int_equal(stored, 4711);
	assert_false(spool_header_read(header, 4710, &stored));
	assert_false(spool_header_read(header, SPOOL_HEADER_SIZE - 1, &stored));
	spool_header_write(header, SPOOL_HEADER_SIZE - 1);
	assert_false(spool_header_read(header, 4711, &stored));
	header[0] ^= 1;
	assert_false(spool_header_read(header, 4711, &stored));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_every_flipped_bit),
		cmocka_unit_test(test_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
