/*
 * jwk.h
 *		Public keys that verify tokens: from PEM, and from JSON Web Key sets.
 *
 * A key verifies only the algorithms of its own type, so a token cannot make a
 * public key pass for a secret.  Symmetric keys of a set are passed over.
 */
#ifndef QUEEN_JWK_H
#define QUEEN_JWK_H

#include "jwt.h"

#include <gnutls/abstract.h>

typedef struct Jwk
{
	gnutls_pubkey_t key;
	unsigned algorithms; /* bit per JwtAlgorithm */
	char *id;			 /* NULL: none */
} Jwk;

typedef struct JwkSet
{
	int n;
	Jwk keys[];
} JwkSet;

/* Reads a public key, or a certificate's.  NULL and *error when it is none. */
extern JwkSet *jwk_set_from_pem(const char *pem, const char **error);

/* Reads {"keys": [...]}; keys that no token of ours can need are passed over. */
extern JwkSet *jwk_set_from_json(const char *text, size_t len, const char **error);
extern void jwk_set_free(JwkSet *set);

/* Algorithms that some key of the set verifies. */
extern unsigned jwk_set_algorithms(const JwkSet *set);

/* The first key that fits the algorithm and, where "id" is not absent, has this id. */
extern const Jwk *jwk_find(const JwkSet *set, JwtAlgorithm algorithm, Span id);

extern bool jwk_verify(const Jwk *key, const Jwt *jwt);

/* Verifies HS256, HS384 and HS512. */
extern bool jwk_verify_secret(Span secret, const Jwt *jwt);

#endif
