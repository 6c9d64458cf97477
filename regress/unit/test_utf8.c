/*
 * test_utf8.c
 *		UTF-8 against a decoder by arithmetic.
 */
#include "unit.h"

#include "utf8.h"

static size_t
encode(uint32_t code, char *out)
{
	if (code < 0x80)
	{
		out[0] = (char) code;
		return 1;
	}
	if (code < 0x800)
	{
		out[0] = (char) (0xC0 | code >> 6);
		out[1] = (char) (0x80 | (code & 63));
		return 2;
	}
	if (code < 0x10000)
	{
		out[0] = (char) (0xE0 | code >> 12);
		out[1] = (char) (0x80 | (code >> 6 & 63));
		out[2] = (char) (0x80 | (code & 63));
		return 3;
	}
	out[0] = (char) (0xF0 | code >> 18);
	out[1] = (char) (0x80 | (code >> 12 & 63));
	out[2] = (char) (0x80 | (code >> 6 & 63));
	out[3] = (char) (0x80 | (code & 63));
	return 4;
}

/* Decodes the bit pattern whatever it means, then judges the code point and the length. */
static size_t
reference_sequence(const unsigned char *s, size_t len)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t code;
	size_t need;

	if (s[0] < 0x80)
		return 1;
	if ((s[0] & 0xE0) == 0xC0)
	{
		need = 2;
		code = s[0] & 0x1F;
	}
	else if ((s[0] & 0xF0) == 0xE0)
	{
		need = 3;
		code = s[0] & 0x0F;
	}
	else if ((s[0] & 0xF8) == 0xF0)
	{
		need = 4;
		code = s[0] & 0x07;
	}
	else
		return 0;
	if (len < need)
		return 0;
	for (size_t i = 1; i < need; i++)
	{
		if ((s[i] & 0xC0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3F);
	}
	if (code < least[need] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
		return 0;
	return need;
}

static void
test_every_code_point(void **state)
{
	for (uint32_t code = 0; code <= 0x110000; code++)
	{
		char s[4];
		size_t len = encode(code, s);
		bool scalar = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);

		assert_int_equal(utf8_sequence(s, len), scalar ? len : 0);
		assert_int_equal(utf8_sequence(s, len - 1), 0);
		assert_int_equal(utf8_valid(s, len), scalar);
		if (scalar)
			assert_int_equal(utf8_length(s, len), 1);
	}
}

static void
test_bit_patterns(void **state)
{
	static const unsigned char edges[] = {0x00, 0x7F, 0x80, 0x8F, 0x90,
										  0x9F, 0xA0, 0xBF, 0xC0, 0xFF};

	for (unsigned first = 0; first < 256; first++)
	{
		for (unsigned second = 0; second < 256; second++)
		{
			for (size_t i = 0; i < lengthof(edges); i++)
			{
				for (size_t j = 0; j < lengthof(edges); j++)
				{
					unsigned char s[4] = {(unsigned char) first, (unsigned char) second, edges[i],
										  edges[j]};

					for (size_t len = 1; len <= 4; len++)
						assert_int_equal(utf8_sequence((char *) s, len),
										 reference_sequence(s, len));
				}
			}
		}
	}
}

static void
test_bad_byte_at_every_place(void **state)
{
	char text[40];

	for (size_t len = 1; len <= sizeof(text); len++)
	{
		for (size_t at = 0; at < len; at++)
		{
			char *copy;

			memset(text, 'a', sizeof(text));
			copy = exact_copy(text, len);
			assert_true(utf8_valid(copy, len));
			copy[at] = (char) 0x80;
			assert_false(utf8_valid(copy, len));
			copy[at] = (char) 0xC3; /* begins a character that does not follow */
			assert_false(utf8_valid(copy, len));
			free(copy);
		}
	}
	assert_true(utf8_valid("", 0));
}

static void
test_length_counts_characters(void **state)
{
	assert_int_equal(utf8_length("", 0), 0);
	assert_int_equal(utf8_length("gr\xC3\xBC\xC3\x9F", 6), 4);
	assert_int_equal(utf8_length("\xE2\x82\xAC\xF0\x9F\x91\x91x", 8), 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_code_point),
		cmocka_unit_test(test_bit_patterns),
		cmocka_unit_test(test_bad_byte_at_every_place),
		cmocka_unit_test(test_length_counts_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
