/*
 * jwk.c
 *		Public keys that verify tokens: from PEM, and from JSON Web Key sets.
 */
#include "jwk.h"

#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <jansson.h>
#include <stdlib.h>

#define SET_MAX_KEYS 100
#define RSA_MIN_BITS 2048
#define NUMBER_MAX_BYTES 1024 /* of a JWK's modulus: 8192 bits */

#define ALGORITHM(a) (1U << (a))
#define RSA_ALGORITHMS                                                                             \
	(ALGORITHM(JWT_RS256) | ALGORITHM(JWT_RS384) | ALGORITHM(JWT_RS512) | ALGORITHM(JWT_PS256) |   \
	 ALGORITHM(JWT_PS384) | ALGORITHM(JWT_PS512))

static const struct
{
	const char *name; /* of JWK's "crv" */
	gnutls_ecc_curve_t curve;
	JwtAlgorithm algorithm;
} curves[] = {{"P-256", GNUTLS_ECC_CURVE_SECP256R1, JWT_ES256},
			  {"P-384", GNUTLS_ECC_CURVE_SECP384R1, JWT_ES384},
			  {"P-521", GNUTLS_ECC_CURVE_SECP521R1, JWT_ES512},
			  {"Ed25519", GNUTLS_ECC_CURVE_ED25519, JWT_EDDSA}};

#define N_CURVES ((int) (sizeof(curves) / sizeof(curves[0])))

/* What a key of this type and size verifies; 0: nothing that we would trust. */
static unsigned
key_algorithms(gnutls_pubkey_t key)
{
	unsigned bits;
	int type = gnutls_pubkey_get_pk_algorithm(key, &bits);
	gnutls_ecc_curve_t curve;

	if (type == GNUTLS_PK_RSA)
		return bits >= RSA_MIN_BITS ? RSA_ALGORITHMS : 0;
	if (type == GNUTLS_PK_EDDSA_ED25519)
		return ALGORITHM(JWT_EDDSA);
	if (type != GNUTLS_PK_ECDSA || gnutls_pubkey_export_ecc_raw2(key, &curve, NULL, NULL, 0) < 0)
		return 0;
	for (int i = 0; i < N_CURVES; i++)
		if (curves[i].curve == curve)
			return ALGORITHM(curves[i].algorithm);
	return 0;
}

/* --- PEM ------------------------------------------------------------------- */

static int
import_certificate(gnutls_pubkey_t key, const gnutls_datum_t *pem)
{
	gnutls_x509_crt_t certificate;
	int result = gnutls_x509_crt_init(&certificate);

	if (result < 0)
		return result;
	result = gnutls_x509_crt_import(certificate, pem, GNUTLS_X509_FMT_PEM);
	if (result >= 0)
		result = gnutls_pubkey_import_x509(key, certificate, 0);
	gnutls_x509_crt_deinit(certificate);
	return result;
}

JwkSet *
jwk_set_from_pem(const char *pem, const char **error)
{
	gnutls_datum_t text = {(unsigned char *) pem, (unsigned) strlen(pem)};
	JwkSet *set = calloc(1, sizeof(*set) + sizeof(Jwk));
	int result;

	if (set == NULL || gnutls_pubkey_init(&set->keys[0].key) < 0)
	{
		*error = "could not be read: out of memory";
		free(set);
		return NULL;
	}
	set->n = 1;
	if (strstr(pem, "-----BEGIN CERTIFICATE-----"))
		result = import_certificate(set->keys[0].key, &text);
	else
		result = gnutls_pubkey_import(set->keys[0].key, &text, GNUTLS_X509_FMT_PEM);
	set->keys[0].algorithms = result < 0 ? 0 : key_algorithms(set->keys[0].key);
	if (set->keys[0].algorithms)
		return set;
	*error = result < 0 ? "holds no public key or certificate in PEM"
						: "holds a key of a type, curve or size that is not supported";
	jwk_set_free(set);
	return NULL;
}

/* --- JSON Web Keys ----------------------------------------------------------- */

/* A number or coordinate of a key, which must be there. */
static bool
read_number(const json_t *jwk, const char *name, char *memory, gnutls_datum_t *out)
{
	const json_t *value = json_object_get(jwk, name);
	Span text = {json_string_value(value), json_string_length(value)};
	size_t len;

	if (text.len == 0 || text.len > (NUMBER_MAX_BYTES * 4 + 2) / 3 ||
		!jwt_decode_base64(text, memory, &len))
		return false;
	*out = (gnutls_datum_t){(unsigned char *) memory, (unsigned) len};
	return true;
}

static bool
has_text(const json_t *object, const char *name, const char *text)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value && strcmp(value, text) == 0;
}

static bool
import_rsa(gnutls_pubkey_t key, const json_t *jwk)
{
	char memory[2][NUMBER_MAX_BYTES];
	gnutls_datum_t modulus, exponent;

	return read_number(jwk, "n", memory[0], &modulus) &&
		   read_number(jwk, "e", memory[1], &exponent) &&
		   gnutls_pubkey_import_rsa_raw(key, &modulus, &exponent) >= 0;
}

static bool
import_curve(gnutls_pubkey_t key, const json_t *jwk, bool edwards)
{
	char memory[2][NUMBER_MAX_BYTES];
	gnutls_datum_t x, y;

	for (int i = 0; i < N_CURVES; i++)
	{
		if (!has_text(jwk, "crv", curves[i].name) || edwards != (curves[i].algorithm == JWT_EDDSA))
			continue;
		return read_number(jwk, "x", memory[0], &x) &&
			   (edwards || read_number(jwk, "y", memory[1], &y)) &&
			   gnutls_pubkey_import_ecc_raw(key, curves[i].curve, &x, edwards ? NULL : &y) >= 0;
	}
	return false;
}

static bool
import_key(gnutls_pubkey_t key, const json_t *jwk)
{
	if (has_text(jwk, "kty", "RSA"))
		return import_rsa(key, jwk);
	if (has_text(jwk, "kty", "EC"))
		return import_curve(key, jwk, false);
	return has_text(jwk, "kty", "OKP") && import_curve(key, jwk, true);
}

/* Whether the set's publisher means the key for signatures. */
static bool
is_for_signatures(const json_t *jwk)
{
	const json_t *operations = json_object_get(jwk, "key_ops");
	const json_t *operation;
	size_t i;

	if (json_object_get(jwk, "use") && !has_text(jwk, "use", "sig"))
		return false;
	json_array_foreach(operations, i, operation) if (json_is_string(operation) &&
													 strcmp(json_string_value(operation),
															"verify") == 0) return true;
	return operations == NULL;
}

/* False when there is nothing in it for us. */
static bool
read_jwk(const json_t *jwk, Jwk *out)
{
	const char *id = json_string_value(json_object_get(jwk, "kid"));
	const char *algorithm = json_string_value(json_object_get(jwk, "alg"));
	JwtAlgorithm only;

	if (!is_for_signatures(jwk) || gnutls_pubkey_init(&out->key) < 0)
		return false;
	out->algorithms = import_key(out->key, jwk) ? key_algorithms(out->key) : 0;
	if (algorithm)
		out->algorithms &= jwt_algorithm_parse(algorithm, &only) ? ALGORITHM(only) : 0;
	if (out->algorithms == 0)
	{
		gnutls_pubkey_deinit(out->key);
		return false;
	}
	out->id = id ? strdup(id) : NULL;
	return true;
}

JwkSet *
jwk_set_from_json(const char *text, size_t len, const char **error)
{
	json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *keys = json_object_get(object, "keys");
	size_t n = json_array_size(keys);
	JwkSet *set = NULL;

	if (!json_is_array(keys))
		*error = "is not a JSON object with an array \"keys\"";
	else if (n > SET_MAX_KEYS)
		*error = "holds more than 100 keys";
	else if ((set = calloc(1, sizeof(*set) + n * sizeof(Jwk))) == NULL)
		*error = "could not be read: out of memory";
	for (size_t i = 0; set && i < n; i++)
		if (read_jwk(json_array_get(keys, i), &set->keys[set->n]))
			set->n++;
	json_decref(object);
	if (set && set->n == 0)
	{
		*error = "holds no key that verifies tokens";
		free(set);
		return NULL;
	}
	return set;
}

void
jwk_set_free(JwkSet *set)
{
	if (set == NULL)
		return;
	for (int i = 0; i < set->n; i++)
	{
		gnutls_pubkey_deinit(set->keys[i].key);
		free(set->keys[i].id);
	}
	free(set);
}

unsigned
jwk_set_algorithms(const JwkSet *set)
{
	unsigned algorithms = 0;

	for (int i = 0; i < set->n; i++)
		algorithms |= set->keys[i].algorithms;
	return algorithms;
}

const Jwk *
jwk_find(const JwkSet *set, JwtAlgorithm algorithm, Span id)
{
	for (int i = 0; i < set->n; i++)
	{
		const Jwk *key = &set->keys[i];

		if ((key->algorithms & ALGORITHM(algorithm)) &&
			(id.ptr == NULL || (key->id && span_equals(span_of(key->id), id))))
			return key;
	}
	return NULL;
}

/* --- signatures -------------------------------------------------------------- */

static gnutls_sign_algorithm_t
sign_algorithm(JwtAlgorithm algorithm)
{
	switch (algorithm)
	{
		case JWT_RS256:
			return GNUTLS_SIGN_RSA_SHA256;
		case JWT_RS384:
			return GNUTLS_SIGN_RSA_SHA384;
		case JWT_RS512:
			return GNUTLS_SIGN_RSA_SHA512;
		case JWT_PS256:
			return GNUTLS_SIGN_RSA_PSS_RSAE_SHA256;
		case JWT_PS384:
			return GNUTLS_SIGN_RSA_PSS_RSAE_SHA384;
		case JWT_PS512:
			return GNUTLS_SIGN_RSA_PSS_RSAE_SHA512;
		case JWT_ES256:
			return GNUTLS_SIGN_ECDSA_SHA256;
		case JWT_ES384:
			return GNUTLS_SIGN_ECDSA_SHA384;
		case JWT_ES512:
			return GNUTLS_SIGN_ECDSA_SHA512;
		case JWT_EDDSA:
			return GNUTLS_SIGN_EDDSA_ED25519;
		default:
			return GNUTLS_SIGN_UNKNOWN;
	}
}

/* A token holds the two halves of an ECDSA signature as they are; GnuTLS wants them in DER. */
static bool
encode_ecdsa(const Jwt *jwt, gnutls_datum_t *der)
{
	static const unsigned coordinate_bytes[] = {32, 48, 66};
	unsigned half = coordinate_bytes[jwt->algorithm - JWT_ES256];
	gnutls_datum_t r = {(unsigned char *) jwt->signature.ptr, half};
	gnutls_datum_t s = {(unsigned char *) jwt->signature.ptr + half, half};

	return jwt->signature.len == 2 * half && gnutls_encode_rs_value(der, &r, &s) >= 0;
}

bool
jwk_verify(const Jwk *key, const Jwt *jwt)
{
	gnutls_datum_t text = {(unsigned char *) jwt->protected_part.ptr,
						   (unsigned) jwt->protected_part.len};
	gnutls_datum_t signature = {(unsigned char *) jwt->signature.ptr,
								(unsigned) jwt->signature.len};
	bool ecdsa = jwt->algorithm >= JWT_ES256 && jwt->algorithm <= JWT_ES512;
	bool good;

	if (ecdsa && !encode_ecdsa(jwt, &signature))
		return false;
	good = gnutls_pubkey_verify_data2(key->key, sign_algorithm(jwt->algorithm), 0, &text,
									  &signature) >= 0;
	if (ecdsa)
		gnutls_free(signature.data);
	return good;
}

bool
jwk_verify_secret(Span secret, const Jwt *jwt)
{
	static const gnutls_mac_algorithm_t macs[] = {GNUTLS_MAC_SHA256, GNUTLS_MAC_SHA384,
												  GNUTLS_MAC_SHA512};
	gnutls_mac_algorithm_t mac = macs[jwt->algorithm - JWT_HS256];
	unsigned char digest[64];

	return jwt->signature.len == gnutls_hmac_get_len(mac) &&
		   gnutls_hmac_fast(mac, secret.ptr, secret.len, jwt->protected_part.ptr,
							jwt->protected_part.len, digest) >= 0 &&
		   gnutls_memcmp(digest, jwt->signature.ptr, jwt->signature.len) == 0;
}
