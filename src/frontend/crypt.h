/*
 * crypt.h
 *		Payloads of encrypted queues.
 *
 * An encrypted payload is a JSON object of three base64 strings: "encrypted"
 * (the ciphertext of AES-256-GCM), "iv" (16 bytes, of which the first 12 are
 * the nonce) and "authTag" (16 bytes).  Its frame carries FRAME_ENCRYPTED.
 * Only the front ends have the key; the database stores and moves envelopes.
 */
#ifndef QUEEN_CRYPT_H
#define QUEEN_CRYPT_H

#include "buf.h"
#include "span.h"

#define CRYPT_KEY_SIZE 32

/*
 * The key from 64 hex digits, or from a file that holds them and may end in a
 * newline.  Others than its owner must not be able to read the file; root's
 * may be readable by its group.  NULL, or what is wrong.
 */
extern const char *crypt_key_from_text(Span text, uint8_t key[CRYPT_KEY_SIZE]);
extern const char *crypt_key_from_file(const char *path, uint8_t key[CRYPT_KEY_SIZE]);

typedef struct Crypt Crypt; /* of one thread */

/* NULL when the cipher is not to be had. */
extern Crypt *crypt_new(const uint8_t key[CRYPT_KEY_SIZE]);
extern void crypt_free(Crypt *crypt);

/* Appends the envelope of a payload; false when memory ran out. */
extern bool crypt_seal(Crypt *crypt, Span payload, Buf *envelope);

/* Appends the payload of an envelope; false when it is not one that this key has sealed. */
extern bool crypt_open(Crypt *crypt, Span envelope, Buf *payload);

/*
 * Appends a frame's payload as the JSON that clients get.  An envelope that
 * does not open, or for which there is no key ("crypt" NULL), is served as it
 * is: a message that cannot be read must not block its partition.
 */
extern void crypt_render(Crypt *crypt, int frame_flags, Span payload, Buf *out);

#endif
