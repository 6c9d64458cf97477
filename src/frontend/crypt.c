/*
 * crypt.c
 *		Payloads of encrypted queues.
 */
#include "crypt.h"

#include "frame.h"
#include "json.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define IV_SIZE 16
#define NONCE_SIZE 12
#define PREFIX_SIZE 8
#define TAG_SIZE 16

struct Crypt
{
	gnutls_aead_cipher_hd_t cipher;
	uint8_t prefix[PREFIX_SIZE]; /* of the nonces: drawn at random */
	uint32_t counter;			 /* the rest of them */
	Buf scratch;				 /* ciphertext and tag, or plain text */
};

const char *
crypt_key_from_text(Span text, uint8_t key[CRYPT_KEY_SIZE])
{
	gnutls_datum_t hex = {(unsigned char *) text.ptr, (unsigned int) text.len};
	size_t size = CRYPT_KEY_SIZE;

	if (text.len != 2 * CRYPT_KEY_SIZE || gnutls_hex_decode(&hex, key, &size) < 0 ||
		size != CRYPT_KEY_SIZE)
		return "the encryption key is not 64 hex digits";
	return NULL;
}

static bool
others_can_read(const struct stat *st)
{
	return st->st_mode & (st->st_uid == 0 ? S_IWGRP | S_IRWXO : S_IRWXG | S_IRWXO);
}

const char *
crypt_key_from_file(const char *path, uint8_t key[CRYPT_KEY_SIZE])
{
	char text[2 * CRYPT_KEY_SIZE + 2]; /* room to notice a file that is too long */
	FILE *file = fopen(path, "r");
	const char *error = NULL;
	struct stat st;
	size_t len;

	if (file == NULL || fstat(fileno(file), &st) < 0)
		return "could not open the file of the encryption key";
	setbuf(file, NULL);
	len = fread(text, 1, sizeof(text), file);
	fclose(file);
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (others_can_read(&st))
		error = "the file of the encryption key can be read by others than its owner";
	else
		error = crypt_key_from_text((Span){text, len}, key);
	explicit_bzero(text, sizeof(text));
	return error;
}

Crypt *
crypt_new(const uint8_t key[CRYPT_KEY_SIZE])
{
	Crypt *crypt = calloc(1, sizeof(*crypt));
	gnutls_datum_t datum = {(unsigned char *) key, CRYPT_KEY_SIZE};

	if (crypt == NULL)
		return NULL;
	if (gnutls_aead_cipher_init(&crypt->cipher, GNUTLS_CIPHER_AES_256_GCM, &datum) < 0)
	{
		free(crypt);
		return NULL;
	}
	return crypt;
}

void
crypt_free(Crypt *crypt)
{
	if (crypt == NULL)
		return;
	gnutls_aead_cipher_deinit(crypt->cipher);
	buf_free(&crypt->scratch);
	free(crypt);
}

/*
 * A nonce must never come twice under one key.  Threads and processes differ
 * in their random prefix; a thread counts, and draws again before its counter
 * would repeat.  That outlasts random nonces by far.
 */
static bool
next_iv(Crypt *crypt, uint8_t iv[IV_SIZE])
{
	if (crypt->counter == 0 && gnutls_rnd(GNUTLS_RND_RANDOM, crypt->prefix, PREFIX_SIZE) < 0)
		return false;
	memset(iv, 0, IV_SIZE);
	memcpy(iv, crypt->prefix, PREFIX_SIZE);
	memcpy(iv + PREFIX_SIZE, &crypt->counter, sizeof(crypt->counter));
	crypt->counter++;
	return true;
}

/* --- the envelope --------------------------------------------------------- */

static bool
append_base64(Buf *out, const char *before, const void *data, size_t len)
{
	gnutls_datum_t bytes = {(unsigned char *) data, (unsigned int) len};
	gnutls_datum_t text;

	if (gnutls_base64_encode2(&bytes, &text) < 0)
		return false;
	buf_append_str(out, before);
	buf_append(out, text.data, text.size);
	gnutls_free(text.data);
	return true;
}

/* A string member of base64, decoded into "out"; a second one of the name is an error. */
static bool
read_base64(JsonReader *reader, gnutls_datum_t *out)
{
	gnutls_datum_t text;
	JsonValue value;

	if (out->data || !json_value(reader, &value) || value.type != JSON_STRING || value.escaped)
		return false;
	text =
		(gnutls_datum_t){(unsigned char *) value.text.ptr + 1, (unsigned int) (value.text.len - 2)};
	return gnutls_base64_decode2(&text, out) >= 0;
}

typedef struct Envelope
{
	gnutls_datum_t encrypted, iv, tag;
} Envelope;

static bool
read_envelope(Span text, Envelope *envelope)
{
	JsonReader reader;
	JsonValue key;

	json_begin(&reader, text.ptr, text.len, 1);
	if (!json_enter_object(&reader))
		return false;
	while (json_next_key(&reader, &key))
	{
		gnutls_datum_t *member = json_string_equals(&key, "encrypted") ? &envelope->encrypted
								 : json_string_equals(&key, "iv")	   ? &envelope->iv
								 : json_string_equals(&key, "authTag") ? &envelope->tag
																	   : NULL;

		if (member == NULL || !read_base64(&reader, member))
			return false;
	}
	return json_end(&reader) && envelope->encrypted.data && envelope->iv.size == IV_SIZE &&
		   envelope->tag.size == TAG_SIZE;
}

static void
free_envelope(Envelope *envelope)
{
	gnutls_free(envelope->encrypted.data);
	gnutls_free(envelope->iv.data);
	gnutls_free(envelope->tag.data);
}

/* --- sealing and opening --------------------------------------------------- */

bool
crypt_seal(Crypt *crypt, Span payload, Buf *envelope)
{
	Buf *sealed = &crypt->scratch;
	size_t len = payload.len + TAG_SIZE;
	uint8_t iv[IV_SIZE];
	bool ok;

	buf_reset(sealed);
	ok = buf_reserve(sealed, len) && next_iv(crypt, iv) &&
		 gnutls_aead_cipher_encrypt(crypt->cipher, iv, NONCE_SIZE, NULL, 0, TAG_SIZE, payload.ptr,
									payload.len, sealed->data, &len) >= 0 &&
		 append_base64(envelope, "{\"encrypted\":\"", sealed->data, payload.len) &&
		 append_base64(envelope, "\",\"iv\":\"", iv, IV_SIZE) &&
		 append_base64(envelope, "\",\"authTag\":\"", sealed->data + payload.len, TAG_SIZE);
	buf_append_str(envelope, "\"}");
	return ok && !envelope->failed;
}

static bool
open_envelope(Crypt *crypt, const Envelope *envelope, Buf *payload)
{
	Buf *sealed = &crypt->scratch;
	size_t len = envelope->encrypted.size;

	buf_reset(sealed);
	buf_append(sealed, envelope->encrypted.data, envelope->encrypted.size);
	buf_append(sealed, envelope->tag.data, envelope->tag.size);
	payload->failed = payload->failed || sealed->failed; /* else the envelope would be served */
	if (payload->failed || !buf_reserve(payload, len) ||
		gnutls_aead_cipher_decrypt(crypt->cipher, envelope->iv.data, NONCE_SIZE, NULL, 0, TAG_SIZE,
								   sealed->data, sealed->len, payload->data + payload->len,
								   &len) < 0)
		return false;
	payload->len += len;
	return true;
}

bool
crypt_open(Crypt *crypt, Span text, Buf *payload)
{
	Envelope envelope = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
	bool ok = read_envelope(text, &envelope) && open_envelope(crypt, &envelope, payload);

	free_envelope(&envelope);
	return ok;
}

void
crypt_render(Crypt *crypt, int frame_flags, Span payload, Buf *out)
{
	if (payload.len == 0)
		buf_append_str(out, "null");
	else if (!(frame_flags & FRAME_ENCRYPTED) || crypt == NULL || !crypt_open(crypt, payload, out))
		buf_append(out, payload.ptr, payload.len);
}
