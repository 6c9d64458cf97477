/*
 * jwt.h
 *		Reads JSON Web Tokens: three parts in base64url, joined by dots.
 *
 * Everything here is about the token alone.  Whether its signature is good is
 * for keyring.c to say, and only then are the claims worth reading.  What is
 * ambiguous is refused: padding or spare bits in base64url, a repeated member,
 * a critical extension.  Keys that the token itself names or brings (jwk, jku,
 * x5c, x5u) are never looked at.
 */
#ifndef QUEEN_JWT_H
#define QUEEN_JWT_H

#include "span.h"

#include <stdint.h>

#define JWT_MAX_BYTES 8192

/* In groups of three that differ in the hash; the order is used. */
typedef enum JwtAlgorithm
{
	JWT_HS256,
	JWT_HS384,
	JWT_HS512,
	JWT_RS256,
	JWT_RS384,
	JWT_RS512,
	JWT_PS256,
	JWT_PS384,
	JWT_PS512,
	JWT_ES256,
	JWT_ES384,
	JWT_ES512,
	JWT_EDDSA,
	N_JWT_ALGORITHMS
} JwtAlgorithm;

/* What the signature protects, and the signature.  Spans point into the token or "memory". */
typedef struct Jwt
{
	JwtAlgorithm algorithm;
	Span key_id; /* ptr NULL: none */
	Span protected_part;
	Span payload; /* decoded */
	Span signature;
	char memory[JWT_MAX_BYTES];
} Jwt;

/* Claims and what the configuration wants of them. */
typedef struct JwtRules
{
	int64_t clock_skew;	  /* seconds */
	const char *issuer;	  /* empty: any */
	const char *audience; /* empty: any */
	const char *role_claim;
	const char *roles_claim;
	const char *role_names[4]; /* by bit of JwtClaims.roles */
} JwtRules;

typedef struct JwtClaims
{
	double not_before; /* seconds of the epoch, the skew allowed for */
	double not_after;
	unsigned roles; /* bit i: role_names[i] */
	char *subject;	/* malloc'ed; NULL when there is none, or an empty one */
} JwtClaims;

/* Name as in the header's "alg", in any case; false when there is none of that name. */
extern bool jwt_algorithm_parse(const char *name, JwtAlgorithm *out);

/* base64url without padding; appends to "out", which must have room for 3/4 of the text. */
extern bool jwt_decode_base64(Span text, char *out, size_t *len);

/* Takes the token apart.  NULL, or what is wrong with it. */
extern const char *jwt_read(Span token, Jwt *jwt);

/*
 * Reads and judges the claims.  NULL, or what is wrong with them, which may be
 * jwt_out_of_memory; then *claims is empty.
 */
extern const char jwt_out_of_memory[];
extern const char *jwt_read_claims(const Jwt *jwt, const JwtRules *rules, double now,
								   JwtClaims *claims);

/* Whether the time that the claims allow includes "now". */
extern const char *jwt_check_time(const JwtClaims *claims, double now);

#endif
