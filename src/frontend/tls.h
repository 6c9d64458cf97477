/*
 * tls.h
 *		The certificate of the listener.
 */
#ifndef QUEEN_TLS_H
#define QUEEN_TLS_H

#include "conf.h"

#include <gnutls/abstract.h>

/* What the library may agree on: TLS 1.2 and 1.3, with GnuTLS's own choice of ciphers. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Loads certificate and key, where they are set.  False, with the reason on stderr. */
extern bool tls_setup(const Conf *conf);
extern bool tls_enabled(void);

/* Reads the files again; what cannot be used leaves the old ones in use. */
extern void tls_reload(void);
extern void tls_free(void);

/* Gives GnuTLS certificate and key of a handshake (gnutls_certificate_retrieve_function2). */
extern int tls_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
						   int n_authorities, const gnutls_pk_algorithm_t *algorithms,
						   int n_algorithms, gnutls_pcert_st **chain, unsigned *chain_len,
						   gnutls_privkey_t *key);

#endif
