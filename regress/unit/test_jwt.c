/*
 * test_jwt.c
 *		What a token says, and what is no token.
 */
#include "unit.h"

#include "base64url.h"
#include "jwt.h"

#include <math.h>

#define NOW 1700000000.0

static const JwtRules no_rules = {.issuer = "",
								  .audience = "",
								  .role_claim = "role",
								  .roles_claim = "roles",
								  .role_names = {"admin", "read-write", "read-only", "write-only"}};

/* Without memory for a subject (linked with --wrap). */
static bool no_memory;

extern char *__real_strdup(const char *text);
extern char *__wrap_strdup(const char *text);

char *
__wrap_strdup(const char *text)
{
	return no_memory ? NULL : __real_strdup(text);
}

/* --- base64url ------------------------------------------------------------- */

static void
assert_decodes(const char *text, const char *expected)
{
	size_t len = strlen(text);
	char *copy = exact_copy(text, len);
	char *out = malloc(len * 3 / 4 + 1);
	size_t out_len;

	assert_non_null(out);
	assert_int_equal(jwt_decode_base64((Span){copy, len}, out, &out_len), expected != NULL);
	if (expected)
	{
		assert_int_equal(out_len, strlen(expected));
		assert_memory_equal(out, expected, out_len);
	}
	free(copy);
	free(out);
}

static void
test_base64(void **state)
{
	/* The vectors of RFC 4648 without padding, and the two digits of its own. */
	assert_decodes("", "");
	assert_decodes("Zg", "f");
	assert_decodes("Zm8", "fo");
	assert_decodes("Zm9v", "foo");
	assert_decodes("Zm9vYg", "foob");
	assert_decodes("Zm9vYmE", "fooba");
	assert_decodes("Zm9vYmFy", "foobar");
	assert_decodes("-_-_", "\xfb\xff\xbf");
}

static void
test_base64_refuses(void **state)
{
	static const char *const bad[] = {"Z",	  "Zm9vY", "Zg==",	"Zm8=", "Zm9v=", "Zh",	   "Zm9",
									  "+/+/", "Zm 9v", "Zm9v ", "\nZg", "Zm.8",	 "Zm\x80v"};

	for (size_t i = 0; i < lengthof(bad); i++)
		assert_decodes(bad[i], NULL);
}

/* --- tokens ---------------------------------------------------------------- */

static const char *
read_token(Span token, Jwt *jwt)
{
	char *copy = exact_copy(token.ptr, token.len);
	const char *error;

	memset(jwt, 0xff, sizeof(*jwt));
	error = jwt_read((Span){copy, token.len}, jwt);
	if (error == NULL) /* lives on in the caller's text */
	{
		assert_ptr_equal(jwt->protected_part.ptr, copy);
		jwt->protected_part.ptr = token.ptr;
	}
	free(copy);
	return error;
}

static const char *
read_header(const char *header, Jwt *jwt)
{
	Buf token = {0};
	const char *error;

	base64url_append(&token, header, strlen(header));
	buf_append_str(&token, ".e30.AA");
	error = read_token((Span){token.data, token.len}, jwt);
	buf_free(&token);
	return error;
}

static void
assert_span(Span span, const char *expected)
{
	assert_true(span_equals(span, span_of(expected)));
}

static void
test_parts(void **state)
{
	Span token = SPAN_LITERAL("eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleSJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl");
	Jwt jwt;

	assert_null(read_token(token, &jwt));
	assert_int_equal(jwt.algorithm, JWT_ES256);
	assert_span(jwt.key_id, "key");
	assert_span(jwt.protected_part, "eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleSJ9.eyJzdWIiOiJhIn0");
	assert_span(jwt.payload, "{\"sub\":\"a\"}");
	assert_span(jwt.signature, "signature");
	assert_null(read_token(SPAN_LITERAL("eyJhbGciOiJFUzI1NiJ9.e30."), &jwt));
	assert_null(jwt.key_id.ptr);
	assert_int_equal(jwt.signature.len, 0);
}

static void
test_no_tokens(void **state)
{
	static const char *const bad[] = {"",
									  "a",
									  ".",
									  "eyJhbGciOiJFUzI1NiJ9",
									  "eyJhbGciOiJFUzI1NiJ9.e30",
									  "eyJhbGciOiJFUzI1NiJ9.e30.AA.",
									  "eyJhbGciOiJFUzI1NiJ9.e30.AA.AA",
									  "eyJhbGciOiJFUzI1NiJ9=.e30.AA",
									  "eyJhbGciOiJFUzI1NiJ9.e31.AA",
									  "eyJhbGciOiJFUzI1NiJ9.e30.A",
									  " eyJhbGciOiJFUzI1NiJ9.e30.AA"};
	Jwt jwt;

	for (size_t i = 0; i < lengthof(bad); i++)
		assert_string_equal(read_token(span_of(bad[i]), &jwt), "malformed token");
	assert_string_equal(read_token(SPAN_LITERAL("..."), &jwt), "malformed token");
	assert_string_equal(read_token(SPAN_LITERAL(".."), &jwt), "malformed token header");
}

static void
test_length(void **state)
{
	Span start = SPAN_LITERAL("eyJhbGciOiJFUzI1NiJ9.e30.");
	Buf token = {0};
	Jwt jwt;

	buf_append(&token, start.ptr, start.len);
	while (token.len < JWT_MAX_BYTES)
		buf_append_char(&token, 'A');
	assert_null(read_token((Span){token.data, token.len}, &jwt));
	buf_append_char(&token, 'A');
	assert_string_equal(read_token((Span){token.data, token.len}, &jwt), "token too long");
	buf_free(&token);
}

static void
test_headers(void **state)
{
	static const struct
	{
		const char *header;
		const char *error;
	} cases[] = {
		{"{}", "token header names no algorithm"},
		{"{\"alg\":1}", "token header names no algorithm"},
		{"{\"alg\":null}", "token header names no algorithm"},
		{"{\"alg\":\"none\"}", "unsupported token algorithm"},
		{"{\"alg\":\"\"}", "unsupported token algorithm"},
		{"{\"alg\":\"hs256\"}", "unsupported token algorithm"},
		{"{\"alg\":\"HS2560\"}", "unsupported token algorithm"},
		{"{\"alg\":\"HS256\",\"crit\":[]}", "token needs an extension that is not supported"},
		{"{\"alg\":\"HS256\",\"kid\":7}", "token key id is not a string"},
		{"{\"alg\":\"HS256\",\"alg\":\"HS256\"}", "malformed token header"},
		{"{\"alg\":\"HS256\",\"kid\":\"a\\u0000b\"}", "malformed token header"},
		{"{\"alg\":\"HS256\"} x", "malformed token header"},
		{"[\"HS256\"]", "malformed token header"},
		{"\"HS256\"", "malformed token header"},
		{"{\"alg\":\"HS256\",\"kid\":\"\xff\"}", "malformed token header"},
	};
	Jwt jwt;

	for (size_t i = 0; i < lengthof(cases); i++)
		assert_string_equal(read_header(cases[i].header, &jwt), cases[i].error);
	/* Keys that a token brings are nothing to it. */
	assert_null(read_header("{\"alg\":\"HS256\",\"jwk\":{},\"jku\":\"x\",\"x5c\":[]}", &jwt));
	assert_null(read_header("{\"alg\":\"HS256\",\"kid\":\"\"}", &jwt));
	assert_non_null(jwt.key_id.ptr);
	assert_int_equal(jwt.key_id.len, 0);
	assert_null(read_header("{\"alg\":\"HS256\",\"kid\":\"\\u00e9\"}", &jwt));
	assert_span(jwt.key_id, "\xc3\xa9");
}

static void
test_algorithms(void **state)
{
	static const char *const names[] = {"HS256", "HS384", "HS512", "RS256", "RS384",
										"RS512", "PS256", "PS384", "PS512", "ES256",
										"ES384", "ES512", "EdDSA"};
	JwtAlgorithm found;
	char header[32];
	Jwt jwt;

	assert_int_equal(lengthof(names), N_JWT_ALGORITHMS);
	for (unsigned i = 0; i < lengthof(names); i++)
	{
		snprintf(header, sizeof(header), "{\"alg\":\"%s\"}", names[i]);
		assert_null(read_header(header, &jwt));
		assert_int_equal(jwt.algorithm, i);
		assert_true(jwt_algorithm_parse(names[i], &found));
		assert_int_equal(found, i);
	}
	assert_true(jwt_algorithm_parse("eddsa", &found));
	assert_int_equal(found, JWT_EDDSA);
	assert_false(jwt_algorithm_parse("none", &found));
	assert_false(jwt_algorithm_parse("", &found));
}

/* --- claims ---------------------------------------------------------------- */

static const char *
read_claims(const char *text, const JwtRules *rules, JwtClaims *claims)
{
	size_t len = strlen(text);
	char *copy = exact_copy(text, len);
	Jwt jwt = {.payload = {copy, len}};
	const char *error;

	memset(claims, 0xff, sizeof(*claims));
	error = jwt_read_claims(&jwt, rules, NOW, claims);
	free(copy);
	return error;
}

/* "error" NULL: they are good. */
static void
assert_claims(const char *text, const JwtRules *rules, const char *error)
{
	static const JwtClaims empty;
	JwtClaims claims;
	const char *result = read_claims(text, rules, &claims);

	if (error == NULL)
		assert_null(result);
	else
	{
		assert_non_null(result);
		assert_string_equal(result, error);
		assert_memory_equal(&claims, &empty, sizeof(claims));
	}
	free(claims.subject);
}

static void
test_malformed_claims(void **state)
{
	static const char *const bad[] = {"",
									  "x",
									  "[]",
									  "1",
									  "{",
									  "{} x",
									  "{\"sub\":\"a\",\"sub\":\"a\"}",
									  "{\"exp\":9223372036854775808}",
									  "{\"sub\":\"a\\u0000b\"}",
									  "{\"sub\":\"\xc0\x80\"}"};

	for (size_t i = 0; i < lengthof(bad); i++)
		assert_claims(bad[i], &no_rules, "malformed token claims");
	assert_claims("{}", &no_rules, NULL);
	assert_claims("{\"sub\":1}", &no_rules, "token subject is not a string");
	assert_claims("{\"exp\":1800000000,\"sub\":null}", &no_rules, "token subject is not a string");
}

/* At the edges, with and without skew. */
static void
test_times(void **state)
{
	JwtRules skewed = no_rules;

	skewed.clock_skew = 30;
	assert_claims("{\"exp\":1700000001}", &no_rules, NULL);
	assert_claims("{\"exp\":1700000000.5}", &no_rules, NULL);
	assert_claims("{\"exp\":1700000000}", &no_rules, "token has expired");
	assert_claims("{\"exp\":1699999971}", &skewed, NULL);
	assert_claims("{\"exp\":1699999970}", &skewed, "token has expired");
	assert_claims("{\"nbf\":1700000000}", &no_rules, NULL);
	assert_claims("{\"nbf\":1700000001}", &no_rules, "token is not valid yet");
	assert_claims("{\"nbf\":1700000030}", &skewed, NULL);
	assert_claims("{\"nbf\":1700000031}", &skewed, "token is not valid yet");
	assert_claims("{\"iat\":1700000000}", &no_rules, NULL);
	assert_claims("{\"iat\":1700000001}", &no_rules, "token was issued in the future");
	assert_claims("{\"iat\":1700000030}", &skewed, NULL);
	assert_claims("{\"iat\":1700000031}", &skewed, "token was issued in the future");
	assert_claims("{\"exp\":\"1800000000\"}", &no_rules, "token time is not a number");
	assert_claims("{\"nbf\":null}", &no_rules, "token time is not a number");
	assert_claims("{\"iat\":true}", &no_rules, "token time is not a number");
	assert_claims("{\"exp\":-1}", &no_rules, "token has expired");
	assert_claims("{\"exp\":1e308,\"nbf\":-1e308}", &skewed, NULL);
}

static void
test_time_passes(void **state)
{
	JwtClaims claims;

	assert_null(read_claims("{\"nbf\":1699999990,\"exp\":1700000010}", &no_rules, &claims));
	assert_string_equal(jwt_check_time(&claims, NOW - 11), "token is not valid yet");
	assert_null(jwt_check_time(&claims, NOW - 10));
	assert_null(jwt_check_time(&claims, NOW + 9.5));
	assert_string_equal(jwt_check_time(&claims, NOW + 10), "token has expired");
	assert_null(read_claims("{}", &no_rules, &claims));
	assert_null(jwt_check_time(&claims, -1e18));
	assert_null(jwt_check_time(&claims, 1e18));
}

static void
test_issuer_and_audience(void **state)
{
	JwtRules rules = no_rules;

	rules.issuer = "us";
	assert_claims("{\"iss\":\"us\"}", &rules, NULL);
	assert_claims("{\"iss\":\"us2\"}", &rules, "token is from another issuer");
	assert_claims("{\"iss\":[\"us\"]}", &rules, "token is from another issuer");
	assert_claims("{}", &rules, "token is from another issuer");
	rules = no_rules;
	rules.audience = "queen";
	assert_claims("{\"aud\":\"queen\"}", &rules, NULL);
	assert_claims("{\"aud\":[1,\"others\",\"queen\"]}", &rules, NULL);
	assert_claims("{\"aud\":[]}", &rules, "token is for another audience");
	assert_claims("{\"aud\":[[\"queen\"]]}", &rules, "token is for another audience");
	assert_claims("{\"aud\":{\"queen\":\"queen\"}}", &rules, "token is for another audience");
	assert_claims("{}", &rules, "token is for another audience");
}

static void
test_roles(void **state)
{
	static const struct
	{
		const char *claims;
		unsigned roles;
	} cases[] = {
		{"{}", 0},
		{"{\"role\":\"admin\"}", 1},
		{"{\"role\":\"read-write\"}", 2},
		{"{\"roles\":[\"read-only\",\"write-only\"]}", 12},
		{"{\"role\":\"admin\",\"roles\":[\"write-only\"]}", 9},
		{"{\"role\":[\"admin\"],\"roles\":\"read-only\"}", 5},
		{"{\"role\":\"Admin\"}", 0},
		{"{\"role\":\"admin,read-only\"}", 0},
		{"{\"role\":1,\"roles\":{\"admin\":true}}", 0},
		{"{\"roles\":[[\"admin\"],null,1]}", 0},
		{"{\"group\":\"admin\"}", 0},
	};
	JwtRules renamed = no_rules;
	JwtClaims claims;

	for (size_t i = 0; i < lengthof(cases); i++)
	{
		assert_null(read_claims(cases[i].claims, &no_rules, &claims));
		assert_int_equal(claims.roles, cases[i].roles);
	}
	renamed.role_claim = "group";
	renamed.role_names[0] = "root";
	assert_null(read_claims("{\"group\":\"root\"}", &renamed, &claims));
	assert_int_equal(claims.roles, 1);
	assert_null(read_claims("{\"group\":\"admin\",\"role\":\"root\"}", &renamed, &claims));
	assert_int_equal(claims.roles, 0);
}

static void
test_subject(void **state)
{
	JwtClaims claims;

	assert_null(read_claims("{\"sub\":\"\\u00e9\"}", &no_rules, &claims));
	assert_string_equal(claims.subject, "\xc3\xa9");
	free(claims.subject);
	assert_null(read_claims("{\"sub\":\"\"}", &no_rules, &claims));
	assert_null(claims.subject);

	/* A token is not good without the subject that it names. */
	no_memory = true;
	assert_ptr_equal(read_claims("{\"sub\":\"x\"}", &no_rules, &claims), jwt_out_of_memory);
	no_memory = false;
	assert_null(claims.subject);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_base64_refuses),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_no_tokens),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_algorithms),
		cmocka_unit_test(test_malformed_claims),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_time_passes),
		cmocka_unit_test(test_issuer_and_audience),
		cmocka_unit_test(test_roles),
		cmocka_unit_test(test_subject),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
