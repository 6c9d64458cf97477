/*
 * test_crypt.c
 *		Sealing and opening payloads, and the key's text.
 */
#include "unit.h"

#include "crypt.h"
#include "frame.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_TEXT "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"

/*
 * Test case 15 of the GCM specification: this key, nonce cafebabefacedbaddecaf888,
 * the plain text below.  The last four bytes of the IV have no meaning.
 */
#define VECTOR(iv)                                                                                 \
	"{\"encrypted\":\"Ui3B8JlWfQf0fzejKoRCfWQ6jNy/"                                                \
	"5cDJdZiivSVV0aqMsI5IWQ27PaewixBWgog4xfYeY5O6egq8"                                             \
	"yfZiiYAVrQ==\",\"iv\":\"" iv "\",\"authTag\":\"sJTaxdk0cb3sGlAicOPMbA==\"}"

static const uint8_t vector_plain[64] = {
	0xd9, 0x31, 0x32, 0x25, 0xf8, 0x84, 0x06, 0xe5, 0xa5, 0x59, 0x09, 0xc5, 0xaf, 0xf5, 0x26, 0x9a,
	0x86, 0xa7, 0xa9, 0x53, 0x15, 0x34, 0xf7, 0xda, 0x2e, 0x4c, 0x30, 0x3d, 0x8a, 0x31, 0x8a, 0x72,
	0x1c, 0x3c, 0x0c, 0x95, 0x95, 0x68, 0x09, 0x53, 0x2f, 0xcf, 0x0e, 0x24, 0x49, 0xa6, 0xb5, 0x25,
	0xb1, 0x6a, 0xed, 0xf5, 0xaa, 0x0d, 0xe6, 0x57, 0xba, 0x63, 0x7b, 0x39, 0x1a, 0xaf, 0xd2, 0x55};

static Crypt *
crypt_with(const char *key_text)
{
	uint8_t key[CRYPT_KEY_SIZE];
	Crypt *crypt;

	assert_null(crypt_key_from_text(span_of(key_text), key));
	crypt = crypt_new(key);
	assert_non_null(crypt);
	return crypt;
}

static bool
opens(Crypt *crypt, const char *envelope)
{
	Buf plain = {0};
	bool ok = crypt_open(crypt, span_of(envelope), &plain);

	assert_true(ok || plain.len == 0);
	buf_free(&plain);
	return ok;
}

static void
test_published_vector(void **state)
{
	Crypt *crypt = crypt_with(KEY_TEXT);
	Buf plain = {0};

	assert_true(crypt_open(crypt, SPAN_LITERAL(VECTOR("yv66vvrO263eyviIAAAAAA==")), &plain));
	assert_int_equal(plain.len, sizeof(vector_plain));
	assert_memory_equal(plain.data, vector_plain, sizeof(vector_plain));
	assert_true(opens(crypt, VECTOR("yv66vvrO263eyviI/////w==")));
	assert_false(opens(crypt, VECTOR("yv66vvrO263eyviJAAAAAA==")));
	buf_free(&plain);
	crypt_free(crypt);
}

static void
assert_round_trip(Crypt *crypt, Span payload)
{
	Buf envelope = {0}, plain = {0};

	buf_append_str(&plain, "before");
	assert_true(crypt_seal(crypt, payload, &envelope));
	assert_null(memmem(envelope.data, envelope.len, payload.ptr, payload.len));
	assert_true(crypt_open(crypt, (Span){envelope.data, envelope.len}, &plain));
	assert_int_equal(plain.len, payload.len + 6);
	assert_memory_equal(plain.data + 6, payload.ptr, payload.len);
	buf_free(&envelope);
	buf_free(&plain);
}

static void
test_round_trip(void **state)
{
	static char big[3 * 1024 * 1024 + 1];
	Crypt *crypt = crypt_with(KEY_TEXT);

	memset(big, 'x', sizeof(big));
	assert_round_trip(crypt, SPAN_LITERAL("{}"));
	for (size_t len = 16; len < 100; len++)
		assert_round_trip(crypt, (Span){big, len});
	assert_round_trip(crypt, (Span){big, sizeof(big)});
	crypt_free(crypt);
}

/* Every bit of the three values counts, save the four bytes of the IV that are no nonce. */
static void
test_tampering(void **state)
{
	Crypt *crypt = crypt_with(KEY_TEXT);
	Crypt *other = crypt_with("0000000000000000000000000000000000000000000000000000000000000000");
	Buf envelope = {0};
	int refused = 0;

	assert_true(crypt_seal(crypt, SPAN_LITERAL("{\"total\":41.5}"), &envelope));
	buf_append_char(&envelope, '\0');
	assert_true(opens(crypt, envelope.data));
	assert_false(opens(other, envelope.data));
	for (size_t i = 0; i + 1 < envelope.len; i++)
	{
		char was = envelope.data[i];

		/* In base64 the two differ from "was", or each other, in the upper bits, which all count.
		 */
		envelope.data[i] = was >= 'A' && was <= 'P' ? 'w' : 'A';
		refused += !opens(crypt, envelope.data);
		envelope.data[i] = was;
	}
	/* The last six digits of the IV are its last four bytes. */
	assert_int_equal(refused, envelope.len - 1 - 6);
	buf_free(&envelope);
	crypt_free(crypt);
	crypt_free(other);
}

static void
test_not_an_envelope(void **state)
{
	static const char *const texts[] = {
		"",
		"null",
		"[]",
		"{}",
		"{\"encrypted\":\"\"}",
		"{\"encrypted\":1,\"iv\":\"\",\"authTag\":\"\"}",
		"{\"encrypted\":\"AAAA\",\"iv\":\"AAAA\",\"authTag\":\"AAAA\"}",
		"{\"encrypted\":\"!!!!\",\"iv\":\"yv66vvrO263eyviIAAAAAA==\",\"authTag\":"
		"\"sJTaxdk0cb3sGlAicOPMbA==\"}",
		"{\"encrypted\":{\"a\":1},\"iv\":\"\",\"authTag\":\"\"}",
	};
	Crypt *crypt = crypt_with(KEY_TEXT);
	char twice[512];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(opens(crypt, texts[i]));
	assert_true(opens(crypt, VECTOR("yv66vvrO263eyviIAAAAAA==")));
	assert_false(opens(crypt, VECTOR("yv66vvrO263eyviIAAAAAA==") " "
																 "1"));
	snprintf(twice, sizeof(twice), "{\"iv\":\"yv66vvrO263eyviIAAAAAA==\",%s",
			 VECTOR("yv66vvrO263eyviIAAAAAA==") + 1);
	assert_false(opens(crypt, twice));
	crypt_free(crypt);
}

/* No nonce comes twice, in one thread or in two. */
static void
test_nonces(void **state)
{
	Crypt *crypts[2] = {crypt_with(KEY_TEXT), crypt_with(KEY_TEXT)};
	char seen[600][17];

	for (int i = 0; i < 600; i++)
	{
		Buf envelope = {0};
		char *iv;

		assert_true(crypt_seal(crypts[i % 2], SPAN_LITERAL("1"), &envelope));
		buf_append_char(&envelope, '\0');
		iv = strstr(envelope.data, "\"iv\":\"");
		assert_non_null(iv);
		snprintf(seen[i], sizeof(seen[i]), "%.16s", iv + 6); /* 12 bytes */
		for (int j = 0; j < i; j++)
			assert_string_not_equal(seen[i], seen[j]);
		buf_free(&envelope);
	}
	crypt_free(crypts[0]);
	crypt_free(crypts[1]);
}

static void
assert_renders(Crypt *crypt, int flags, const char *payload, const char *expected)
{
	Buf out = {0};

	crypt_render(crypt, flags, span_of(payload), &out);
	buf_append_char(&out, '\0');
	assert_string_equal(out.data, expected);
	buf_free(&out);
}

/* Only the flag makes an envelope of it: a client's own object of that shape is data. */
static void
test_render(void **state)
{
	Crypt *crypt = crypt_with(KEY_TEXT);
	Buf envelope = {0};

	assert_true(crypt_seal(crypt, SPAN_LITERAL("[1, 2]"), &envelope));
	buf_append_char(&envelope, '\0');
	assert_renders(crypt, FRAME_ENCRYPTED, envelope.data, "[1, 2]");
	assert_renders(crypt, 0, envelope.data, envelope.data);
	assert_renders(NULL, FRAME_ENCRYPTED, envelope.data, envelope.data);
	envelope.data[20] ^= 1;
	assert_renders(crypt, FRAME_ENCRYPTED, envelope.data, envelope.data);
	assert_renders(crypt, FRAME_ENCRYPTED, "", "null");
	assert_renders(crypt, 0, "{\"a\": 1}", "{\"a\": 1}");
	buf_free(&envelope);
	crypt_free(crypt);
}

static void
test_key_text(void **state)
{
	uint8_t key[CRYPT_KEY_SIZE];

	assert_null(crypt_key_from_text(SPAN_LITERAL(KEY_TEXT), key));
	assert_int_equal(key[0], 0xfe);
	assert_int_equal(key[31], 0x08);
	assert_non_null(crypt_key_from_text(SPAN_LITERAL(KEY_TEXT "0"), key));
	assert_non_null(crypt_key_from_text((Span){KEY_TEXT, 63}, key));
	assert_non_null(crypt_key_from_text((Span){KEY_TEXT, 62}, key));
	assert_non_null(crypt_key_from_text(SPAN_LITERAL(""), key));
	assert_non_null(crypt_key_from_text(
		SPAN_LITERAL("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f946730830g"), key));
	assert_non_null(crypt_key_from_text(
		SPAN_LITERAL("feffe9928665731c6d6a8f9467308308 effe9928665731c6d6a8f9467308308"), key));
}

static const char *
key_from_file(const char *text, mode_t mode)
{
	char path[] = "/tmp/queen-key-XXXXXX";
	uint8_t key[CRYPT_KEY_SIZE];
	int fd = mkstemp(path);
	const char *error;

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	error = crypt_key_from_file(path, key);
	unlink(path);
	return error;
}

static void
test_key_file(void **state)
{
	uint8_t key[CRYPT_KEY_SIZE];

	assert_null(key_from_file(KEY_TEXT, 0600));
	assert_null(key_from_file(KEY_TEXT "\n", 0400));
	assert_non_null(key_from_file(KEY_TEXT "\n\n", 0600));
	assert_non_null(key_from_file(KEY_TEXT KEY_TEXT, 0600));
	assert_non_null(key_from_file("", 0600));
	assert_non_null(key_from_file(KEY_TEXT, 0604));
	assert_non_null(key_from_file(KEY_TEXT, 0620));
	if (geteuid() != 0)
		assert_non_null(key_from_file(KEY_TEXT, 0640));
	assert_non_null(crypt_key_from_file("/nonexistent/key", key));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published_vector), cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_tampering),		 cmocka_unit_test(test_not_an_envelope),
		cmocka_unit_test(test_nonces),			 cmocka_unit_test(test_render),
		cmocka_unit_test(test_key_text),		 cmocka_unit_test(test_key_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
