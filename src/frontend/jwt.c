/*
 * jwt.c
 *		Reads JSON Web Tokens: three parts in base64url, joined by dots.
 */
#include "jwt.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

static const char *const algorithm_names[N_JWT_ALGORITHMS] = {
	"HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256",
	"PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"};

const char jwt_out_of_memory[] = "out of memory";

bool
jwt_algorithm_parse(const char *name, JwtAlgorithm *out)
{
	for (int i = 0; i < N_JWT_ALGORITHMS; i++)
	{
		if (strcasecmp(name, algorithm_names[i]) == 0)
		{
			*out = (JwtAlgorithm) i;
			return true;
		}
	}
	return false;
}

static int
base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool
jwt_decode_base64(Span text, char *out, size_t *len)
{
	unsigned bits = 0;
	int n_bits = 0;

	*len = 0;
	if (text.len % 4 == 1)
		return false;
	for (size_t i = 0; i < text.len; i++)
	{
		int digit = base64_digit(text.ptr[i]);

		if (digit < 0)
			return false;
		bits = (bits << 6 | (unsigned) digit) & 0xfff;
		n_bits += 6;
		if (n_bits >= 8)
		{
			n_bits -= 8;
			out[(*len)++] = (char) (bits >> n_bits);
		}
	}
	/* One value has one spelling: the bits left over are zero. */
	return (bits & ((1U << n_bits) - 1)) == 0;
}

/* A member that must be a string where it is there. */
static const char *
read_string(const json_t *object, const char *name, Span *out)
{
	const json_t *value = json_object_get(object, name);

	*out = (Span){NULL, 0};
	if (value == NULL)
		return NULL;
	if (!json_is_string(value))
		return "a member of the wrong type";
	*out = (Span){json_string_value(value), json_string_length(value)};
	return NULL;
}

static json_t *
load_object(Span text)
{
	json_t *object = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(object))
		return object;
	json_decref(object);
	return NULL;
}

/* "keep" has room for the key id. */
static const char *
read_header(const json_t *header, Jwt *jwt, char *keep)
{
	Span algorithm;
	JwtAlgorithm found;

	if (read_string(header, "alg", &algorithm) || algorithm.ptr == NULL)
		return "token header names no algorithm";
	if (!jwt_algorithm_parse(algorithm.ptr, &found) ||
		strcmp(algorithm.ptr, algorithm_names[found]) != 0)
		return "unsupported token algorithm";
	jwt->algorithm = found;
	if (json_object_get(header, "crit"))
		return "token needs an extension that is not supported";
	if (read_string(header, "kid", &jwt->key_id))
		return "token key id is not a string";
	if (jwt->key_id.ptr)
		jwt->key_id.ptr = memcpy(keep, jwt->key_id.ptr, jwt->key_id.len);
	return NULL;
}

/* Decodes a part behind what was decoded before. */
static bool
decode_part(Jwt *jwt, size_t *used, Span part, Span *out)
{
	*out = (Span){jwt->memory + *used, 0};
	if (!jwt_decode_base64(part, jwt->memory + *used, &out->len))
		return false;
	*used += out->len;
	return true;
}

const char *
jwt_read(Span token, Jwt *jwt)
{
	const char *dot1, *dot2 = NULL;
	size_t used = 0;
	Span header;
	json_t *object;
	const char *error;

	if (token.len > JWT_MAX_BYTES)
		return "token too long";
	dot1 = memchr(token.ptr, '.', token.len);
	if (dot1)
		dot2 = memchr(dot1 + 1, '.', (size_t) (token.ptr + token.len - dot1 - 1));
	if (dot2 == NULL)
		return "malformed token";
	jwt->protected_part = (Span){token.ptr, (size_t) (dot2 - token.ptr)};
	if (!decode_part(jwt, &used, (Span){token.ptr, (size_t) (dot1 - token.ptr)}, &header) ||
		!decode_part(jwt, &used, (Span){dot1 + 1, (size_t) (dot2 - dot1 - 1)}, &jwt->payload) ||
		!decode_part(jwt, &used, (Span){dot2 + 1, (size_t) (token.ptr + token.len - dot2 - 1)},
					 &jwt->signature))
		return "malformed token";
	object = load_object(header);
	if (object == NULL)
		return "malformed token header";
	/* The header's own bytes are not needed any more, and hold the key id. */
	error = read_header(object, jwt, jwt->memory);
	json_decref(object);
	return error;
}

/* --- claims ---------------------------------------------------------------- */

/* A time in seconds; "fallback" where there is none. */
static bool
read_time(const json_t *claims, const char *name, double fallback, double *out)
{
	const json_t *value = json_object_get(claims, name);

	*out = value ? json_number_value(value) : fallback;
	return value == NULL || json_is_number(value);
}

static const char *
read_times(const json_t *object, const JwtRules *rules, double now, JwtClaims *claims)
{
	double skew = (double) rules->clock_skew;
	double issued;

	if (!read_time(object, "exp", INFINITY, &claims->not_after) ||
		!read_time(object, "nbf", -INFINITY, &claims->not_before) ||
		!read_time(object, "iat", -INFINITY, &issued))
		return "token time is not a number";
	if (issued > now + skew)
		return "token was issued in the future";
	claims->not_after += skew;
	claims->not_before -= skew;
	return jwt_check_time(claims, now);
}

const char *
jwt_check_time(const JwtClaims *claims, double now)
{
	if (now >= claims->not_after)
		return "token has expired";
	if (now < claims->not_before)
		return "token is not valid yet";
	return NULL;
}

static bool
is_text(const json_t *value, const char *text)
{
	const char *string = json_string_value(value);

	return string && strcmp(string, text) == 0;
}

/* The value itself, or one of an array. */
static bool
names_text(const json_t *value, const char *text)
{
	size_t i;
	const json_t *element;

	json_array_foreach(value, i, element) if (is_text(element, text)) return true;
	return is_text(value, text);
}

static unsigned
read_roles(const json_t *object, const JwtRules *rules)
{
	const json_t *role = json_object_get(object, rules->role_claim);
	const json_t *roles = json_object_get(object, rules->roles_claim);
	unsigned mask = 0;

	for (unsigned i = 0; i < 4; i++)
		if (names_text(role, rules->role_names[i]) || names_text(roles, rules->role_names[i]))
			mask |= 1U << i;
	return mask;
}

static const char *
judge_claims(const json_t *object, const JwtRules *rules, double now, JwtClaims *claims)
{
	const char *error = read_times(object, rules, now, claims);
	Span subject;

	if (error)
		return error;
	if (*rules->issuer && !is_text(json_object_get(object, "iss"), rules->issuer))
		return "token is from another issuer";
	if (*rules->audience && !names_text(json_object_get(object, "aud"), rules->audience))
		return "token is for another audience";
	if (read_string(object, "sub", &subject))
		return "token subject is not a string";
	claims->roles = read_roles(object, rules);
	if (subject.len > 0 && (claims->subject = strdup(subject.ptr)) == NULL)
		return jwt_out_of_memory;
	return NULL;
}

const char *
jwt_read_claims(const Jwt *jwt, const JwtRules *rules, double now, JwtClaims *claims)
{
	json_t *object = load_object(jwt->payload);
	const char *error;

	memset(claims, 0, sizeof(*claims));
	if (object == NULL)
		return "malformed token claims";
	error = judge_claims(object, rules, now, claims);
	if (error)
		memset(claims, 0, sizeof(*claims));
	json_decref(object);
	return error;
}
