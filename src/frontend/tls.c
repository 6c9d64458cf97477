/*
 * tls.c
 *		The certificate of the listener.
 *
 * Each handshake takes the newest identity.  GnuTLS keeps pointers to it until
 * the handshake is over, so an identity that was replaced is kept, too.
 */
#include "tls.h"

#include "file.h"
#include "log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_MAX 16

typedef struct Identity
{
	struct Identity *older;
	gnutls_pcert_st chain[CHAIN_MAX];
	unsigned n;
	gnutls_privkey_t key;
} Identity;

static const Conf *files;
static _Atomic(Identity *) newest;

static void
identity_free(Identity *identity)
{
	for (unsigned i = 0; i < identity->n; i++)
		gnutls_pcert_deinit(&identity->chain[i]);
	gnutls_privkey_deinit(identity->key);
	free(identity);
}

/* Without the NUL at its end. */
static gnutls_datum_t
datum_of(const Buf *pem)
{
	return (gnutls_datum_t){(unsigned char *) pem->data, (unsigned) pem->len - 1};
}

static const char *
load_chain(Identity *identity)
{
	Buf pem = {0};
	const char *error = file_read(files->tls_cert, &pem);
	gnutls_datum_t text = datum_of(&pem);

	identity->n = CHAIN_MAX;
	if (error == NULL && gnutls_pcert_list_import_x509_raw(identity->chain, &identity->n, &text,
														   GNUTLS_X509_FMT_PEM, 0) < 0)
		error = "holds no chain of certificates in PEM";
	if (error)
		identity->n = 0;
	buf_free(&pem);
	return error;
}

static const char *
load_key(Identity *identity)
{
	Buf pem = {0};
	const char *error = file_read(files->tls_key, &pem);
	gnutls_datum_t text = datum_of(&pem);

	if (error == NULL &&
		gnutls_privkey_import_x509_raw(identity->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0) < 0)
		error = "holds no private key in PEM without a password";
	if (pem.data)
		explicit_bzero(pem.data, pem.len);
	buf_free(&pem);
	return error;
}

static bool
key_fits(const Identity *identity)
{
	unsigned char ids[2][64];
	size_t lens[2] = {sizeof(ids[0]), sizeof(ids[1])};
	gnutls_pubkey_t public_key;
	bool fits;

	if (gnutls_pubkey_init(&public_key) < 0)
		return false;
	fits = gnutls_pubkey_import_privkey(public_key, identity->key, 0, 0) >= 0 &&
		   gnutls_pubkey_get_key_id(public_key, 0, ids[0], &lens[0]) >= 0 &&
		   gnutls_pubkey_get_key_id(identity->chain[0].pubkey, 0, ids[1], &lens[1]) >= 0 &&
		   lens[0] == lens[1] && memcmp(ids[0], ids[1], lens[0]) == 0;
	gnutls_pubkey_deinit(public_key);
	return fits;
}

/* "setting" names the culprit of an error. */
static const char *
load(const char **setting)
{
	Identity *identity = calloc(1, sizeof(*identity));
	const char *error;

	if (identity == NULL || gnutls_privkey_init(&identity->key) < 0)
		abort();
	*setting = "tls-cert";
	error = load_chain(identity);
	if (error == NULL)
	{
		*setting = "tls-key";
		error = load_key(identity);
	}
	if (error == NULL && !key_fits(identity))
		error = "is not the key of the certificate";
	if (error)
	{
		identity_free(identity);
		return error;
	}
	identity->older = atomic_load(&newest);
	atomic_store(&newest, identity);
	return NULL;
}

bool
tls_setup(const Conf *conf)
{
	const char *setting = "tls-cert and tls-key";
	const char *error = "go together";

	if (*conf->tls_cert == '\0' && *conf->tls_key == '\0')
		return true;
	files = conf;
	if (*conf->tls_cert && *conf->tls_key)
		error = load(&setting);
	if (error)
		fprintf(stderr, "queen-frontend: %s %s\n", setting, error);
	return error == NULL;
}

bool
tls_enabled(void)
{
	return atomic_load(&newest) != NULL;
}

void
tls_reload(void)
{
	const char *setting;
	const char *error;

	if (!tls_enabled())
		return;
	error = load(&setting);
	if (error)
		log_event(LOG_LEVEL_ERROR, "could not reload the certificate", "setting", setting, "error",
				  error, NULL);
	else
		log_event(LOG_LEVEL_INFO, "reloaded the certificate", NULL);
}

void
tls_free(void)
{
	Identity *identity = atomic_load(&newest);

	while (identity)
	{
		Identity *older = identity->older;

		identity_free(identity);
		identity = older;
	}
}

int
tls_certificate(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
				const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **chain,
				unsigned *chain_len, gnutls_privkey_t *key)
{
	Identity *identity = atomic_load(&newest);

	(void) session, (void) authorities, (void) n_authorities;
	(void) algorithms, (void) n_algorithms;
	*chain = identity->chain;
	*chain_len = identity->n;
	*key = identity->key;
	return 0;
}
