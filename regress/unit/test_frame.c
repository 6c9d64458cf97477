/*
 * test_frame.c
 *		The frame layout, both ways, and every way in which it can be malformed.
 */
#include "unit.h"

#include "vectors.h"

static void
assert_span(Span span, const char *text)
{
	assert_true(span_equals(span, span_of(text)));
}

/* Writes into an allocation of exactly frame_size() bytes. */
static uint8_t *
written(const Frame *frame, size_t *len)
{
	uint8_t *bytes;

	*len = frame_size(frame);
	bytes = malloc(*len);
	assert_non_null(bytes);
	frame_write(bytes, frame);
	return bytes;
}

static void
assert_one_frame(const uint8_t *bytes, size_t len, Frame *frame)
{
	FrameReader reader;
	Frame none;

	frame_reader_init(&reader, bytes, len);
	assert_true(frame_next(&reader, frame));
	assert_null(reader.error);
	assert_false(frame_next(&reader, &none));
	assert_null(reader.error);
}

static void
assert_refused(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = exact_copy(bytes, len);
	FrameReader reader;
	Frame frame;
	const char *error;

	frame_reader_init(&reader, copy, len);
	while (frame_next(&reader, &frame))
		;
	error = reader.error;
	assert_non_null(error);

	/* The error stays. */
	assert_false(frame_next(&reader, &frame));
	assert_ptr_equal(reader.error, error);
	free(copy);
}

static void
test_v03_write_vectors(void **state)
{
	Frame plain = VECTOR_PLAIN;
	Frame full = VECTOR_FULL;
	size_t len;
	uint8_t *bytes;

	bytes = written(&plain, &len);
	assert_int_equal(len, sizeof(vector_plain));
	assert_memory_equal(bytes, vector_plain, len);
	free(bytes);

	bytes = written(&full, &len);
	assert_int_equal(len, sizeof(vector_full));
	assert_memory_equal(bytes, vector_full, len);
	free(bytes);
}

static void
test_v03_read_vectors(void **state)
{
	Frame frame;

	assert_one_frame(vector_plain, sizeof(vector_plain), &frame);
	assert_int_equal(frame.flags, 0);
	assert_memory_equal(frame.message_id, vector_plain + 5, 16);
	assert_null(frame.trace_id);
	assert_span(frame.transaction_id, "t1");
	assert_null(frame.producer_sub.ptr);
	assert_span(frame.payload, "{\"n\":1}");

	assert_one_frame(vector_full, sizeof(vector_full), &frame);
	assert_int_equal(frame.flags, FRAME_TRACE | FRAME_PRODUCER);
	assert_memory_equal(frame.message_id, vector_full + 5, 16);
	assert_memory_equal(frame.trace_id, vector_full + 21, 16);
	assert_span(frame.transaction_id, "t2");
	assert_span(frame.producer_sub, "svc");
	assert_span(frame.payload, "[]");
}

static void
test_every_combination_of_fields(void **state)
{
	for (unsigned flags = 0; flags < 8; flags++)
	{
		Frame in = VECTOR_FULL;
		Frame out;
		size_t len;
		uint8_t *bytes;

		in.flags = (uint8_t) flags & FRAME_ENCRYPTED;
		if (!(flags & FRAME_TRACE))
			in.trace_id = NULL;
		if (!(flags & FRAME_PRODUCER))
			in.producer_sub = (Span){0};
		bytes = written(&in, &len);
		assert_one_frame(bytes, len, &out);
		assert_int_equal(out.flags, flags);
		assert_memory_equal(out.message_id, in.message_id, 16);
		assert_int_equal(out.trace_id != NULL, in.trace_id != NULL);
		assert_true(span_equals(out.transaction_id, in.transaction_id));
		assert_int_equal(out.producer_sub.ptr != NULL, in.producer_sub.ptr != NULL);
		assert_true(span_equals(out.producer_sub, in.producer_sub));
		assert_true(span_equals(out.payload, in.payload));
		free(bytes);
	}
}

static void
test_optional_flags_follow_from_the_fields(void **state)
{
	Frame in = VECTOR_PLAIN;
	Frame out;
	size_t len;
	uint8_t *bytes;

	in.flags = 0xFF;
	bytes = written(&in, &len);
	assert_one_frame(bytes, len, &out);
	assert_int_equal(out.flags, FRAME_ENCRYPTED);
	free(bytes);
}

static void
test_lengths_at_their_edges(void **state)
{
	static const size_t lengths[] = {0, 1, 255, 256, 32767, 32768, 65534, 65535};
	char *text = malloc(65535);

	assert_non_null(text);
	for (size_t i = 0; i < 65535; i++)
		text[i] = (char) (i * 7);
	for (size_t i = 0; i < lengthof(lengths); i++)
	{
		for (size_t j = 0; j < lengthof(lengths); j++)
		{
			Frame in = VECTOR_FULL;
			Frame out;
			size_t len;
			uint8_t *bytes;

			in.transaction_id = (Span){text, lengths[i]};
			in.producer_sub = (Span){text, lengths[j]};
			in.payload = (Span){text, lengths[j]};
			bytes = written(&in, &len);
			assert_one_frame(bytes, len, &out);
			assert_true(span_equals(out.transaction_id, in.transaction_id));
			assert_non_null(out.producer_sub.ptr);
			assert_true(span_equals(out.producer_sub, in.producer_sub));
			assert_true(span_equals(out.payload, in.payload));
			free(bytes);
		}
	}
	free(text);
}

static void
test_unknown_flags_are_ignored(void **state)
{
	uint8_t bytes[sizeof(vector_plain)];
	Frame frame;

	memcpy(bytes, vector_plain, sizeof(bytes));
	bytes[4] = 0xF8;
	assert_one_frame(bytes, sizeof(bytes), &frame);
	assert_span(frame.transaction_id, "t1");
	assert_null(frame.trace_id);
	assert_null(frame.producer_sub.ptr);
	assert_span(frame.payload, "{\"n\":1}");
}

static void
test_empty_buffer_has_no_frame(void **state)
{
	FrameReader reader;
	Frame frame;

	frame_reader_init(&reader, vector_plain, 0);
	assert_false(frame_next(&reader, &frame));
	assert_null(reader.error);
	frame_reader_init(&reader, NULL, 0);
	assert_false(frame_next(&reader, &frame));
	assert_null(reader.error);
}

static void
test_every_truncation_is_refused(void **state)
{
	uint8_t bytes[sizeof(vector_full) + sizeof(vector_plain)];

	memcpy(bytes, vector_full, sizeof(vector_full));
	memcpy(bytes + sizeof(vector_full), vector_plain, sizeof(vector_plain));
	for (size_t len = 1; len < sizeof(bytes); len++)
	{
		if (len != sizeof(vector_full))
			assert_refused(bytes, len);
	}
}

static void
test_body_length_is_judged(void **state)
{
	uint8_t bytes[sizeof(vector_full)];
	Frame frame;

	/* Every length that the first byte can state: the frame is 44 bytes of body. */
	for (unsigned body = 0; body < 256; body++)
	{
		memcpy(bytes, vector_full, sizeof(bytes));
		bytes[0] = (uint8_t) body;
		if (body != 44)
			assert_refused(bytes, sizeof(bytes));
	}

	/* No wrap-around with the largest one */
	memcpy(bytes, vector_full, sizeof(bytes));
	memset(bytes, 0xFF, 4);
	assert_refused(bytes, sizeof(bytes));

	/* The least body: no transaction id, no payload */
	memset(bytes, 0, 23);
	bytes[0] = 19;
	assert_one_frame(bytes, 23, &frame);
	assert_int_equal(frame.transaction_id.len, 0);
	assert_int_equal(frame.payload.len, 0);
	bytes[0] = 18;
	assert_refused(bytes, 22);
}

static void
test_field_past_its_body_is_refused(void **state)
{
	uint8_t bytes[sizeof(vector_full) + sizeof(vector_plain)];

	/* A second frame follows, so a careless reader would find bytes there. */
	memcpy(bytes, vector_full, sizeof(vector_full));
	memcpy(bytes + sizeof(vector_full), vector_plain, sizeof(vector_plain));

	bytes[37] = 10; /* transaction id: 9 bytes are left */
	assert_refused(bytes, sizeof(bytes));
	bytes[37] = 8; /* one byte is left for the next length */
	assert_refused(bytes, sizeof(bytes));

	memcpy(bytes, vector_full, sizeof(vector_full));
	bytes[41] = 6; /* producer subject: 5 bytes are left */
	assert_refused(bytes, sizeof(bytes));

	memcpy(bytes, vector_full, sizeof(vector_full));
	bytes[42] = 0xFF;
	assert_refused(bytes, sizeof(bytes));

	/* A trace id that the body has no room for */
	memset(bytes, 0, sizeof(bytes));
	bytes[0] = 20;
	bytes[4] = FRAME_TRACE;
	assert_refused(bytes, sizeof(bytes));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v03_write_vectors),
		cmocka_unit_test(test_v03_read_vectors),
		cmocka_unit_test(test_every_combination_of_fields),
		cmocka_unit_test(test_optional_flags_follow_from_the_fields),
		cmocka_unit_test(test_lengths_at_their_edges),
		cmocka_unit_test(test_unknown_flags_are_ignored),
		cmocka_unit_test(test_empty_buffer_has_no_frame),
		cmocka_unit_test(test_every_truncation_is_refused),
		cmocka_unit_test(test_body_length_is_judged),
		cmocka_unit_test(test_field_past_its_body_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
