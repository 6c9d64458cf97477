/*
 * fuzz_jwt.c
 *		Tokens of any bytes, and tokens whose parts are any bytes.
 *
 * Invariants: base64url that is accepted is the one spelling of what it decodes
 * to; the parts of a token that was read make that token; a token made of parts
 * has these parts; claims are no longer good when more is wanted of them, nor
 * where their own times say so.
 */
#include "jwt.h"

#include "base64url.h"
#include "require.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

#define NOW 1700000000.0

extern int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const JwtRules lenient = {.clock_skew = 86400,
								 .issuer = "",
								 .audience = "",
								 .role_claim = "role",
								 .roles_claim = "roles",
								 .role_names = {"admin", "read-write", "read-only", "write-only"}};
static const JwtRules strict = {.clock_skew = 0,
								.issuer = "issuer",
								.audience = "audience",
								.role_claim = "role",
								.roles_claim = "roles",
								.role_names = {"admin", "read-write", "read-only", "write-only"}};

static void
check_base64(Span text)
{
	char *out = malloc(text.len * 3 / 4 + 1);
	Buf again = {0};
	size_t len;

	require(out != NULL);
	if (jwt_decode_base64(text, out, &len))
	{
		require(len == text.len * 3 / 4);
		base64url_append(&again, out, len);
		require(span_equals((Span){again.data, again.len}, text));
	}
	buf_free(&again);
	free(out);
}

static void
check_claims(const Jwt *jwt)
{
	static const JwtClaims empty;
	JwtClaims claims, others;
	const char *error = jwt_read_claims(jwt, &lenient, NOW, &claims);

	if (error == NULL)
	{
		require(claims.roles < 16);
		require(claims.subject == NULL || *claims.subject);
		require(claims.subject == NULL || utf8_valid(claims.subject, strlen(claims.subject)));
		require(claims.not_before <= NOW && NOW < claims.not_after);
		require(jwt_check_time(&claims, NOW) == NULL);
		require(isinf(claims.not_after) || jwt_check_time(&claims, claims.not_after) != NULL);
	}
	else
		require(memcmp(&claims, &empty, sizeof(claims)) == 0);
	if (jwt_read_claims(jwt, &strict, NOW, &others) == NULL)
	{
		require(error == NULL);
		require(others.roles == claims.roles);
		require(others.not_before >= claims.not_before && others.not_after <= claims.not_after);
	}
	free(claims.subject);
	free(others.subject);
}

static void
check_key_id(const Jwt *jwt)
{
	if (jwt->key_id.ptr == NULL)
		return;
	require(jwt->key_id.ptr == jwt->memory);
	require(jwt->key_id.ptr + jwt->key_id.len <= jwt->payload.ptr);
	require(utf8_valid(jwt->key_id.ptr, jwt->key_id.len));
}

static bool
check_token(Span token, Jwt *jwt)
{
	Buf again = {0};

	if (jwt_read(token, jwt) != NULL)
		return false;
	require(token.len <= JWT_MAX_BYTES);
	require(jwt->algorithm < N_JWT_ALGORITHMS);
	require(jwt->protected_part.ptr == token.ptr);
	check_key_id(jwt);
	buf_append(&again, token.ptr,
			   (size_t) ((const char *) memchr(token.ptr, '.', token.len) - token.ptr) + 1);
	base64url_append(&again, jwt->payload.ptr, jwt->payload.len);
	require(span_equals((Span){again.data, again.len}, jwt->protected_part));
	buf_append_char(&again, '.');
	base64url_append(&again, jwt->signature.ptr, jwt->signature.len);
	require(span_equals((Span){again.data, again.len}, token));
	buf_free(&again);
	check_claims(jwt);
	return true;
}

/* The text up to the next line end, which is passed over. */
static Span
next_line(Span *text)
{
	const char *end = text->len > 0 ? memchr(text->ptr, '\n', text->len) : NULL;
	size_t len = end ? (size_t) (end - text->ptr) : text->len;
	Span line = {text->ptr, len};

	text->ptr += len + (end != NULL);
	text->len -= len + (end != NULL);
	return line;
}

/* Header, payload and signature, in lines. */
static void
check_parts(Span text, Jwt *jwt)
{
	Span header = next_line(&text);
	Span payload = next_line(&text);
	Buf token = {0};

	base64url_append(&token, header.ptr, header.len);
	buf_append_char(&token, '.');
	base64url_append(&token, payload.ptr, payload.len);
	buf_append_char(&token, '.');
	base64url_append(&token, text.ptr, text.len);
	if (check_token((Span){token.data, token.len}, jwt))
	{
		require(span_equals(jwt->payload, payload));
		require(span_equals(jwt->signature, text));
	}
	buf_free(&token);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Span text = {(const char *) data, size};
	Jwt *jwt = malloc(sizeof(*jwt));

	require(jwt != NULL);
	check_base64(text);
	check_token(text, jwt);
	check_parts(text, jwt);
	jwt->payload = text;
	check_claims(jwt);
	free(jwt);
	return 0;
}
