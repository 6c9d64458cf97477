/*
 * conf.h
 *		Settings of the front end.
 *
 * Each setting has one row in conf.c: its flag, its environment variables,
 * its default, its range and what it means.  Flags win over environment, and
 * environment over the file.
 */
#ifndef QUEEN_CONF_H
#define QUEEN_CONF_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Conf
{
	/* listener */
	int64_t port;
	char *bind_addr;
	int64_t threads;
	int64_t max_connections;
	int64_t max_body_bytes;
	int64_t max_buffered_bytes;
	int64_t header_timeout_ms;
	int64_t body_timeout_ms;
	int64_t idle_timeout_ms;
	int64_t shutdown_timeout_ms;
	char *tls_cert; /* files */
	char *tls_key;

	/* who may do what */
	bool jwt_enabled;
	char *jwt_algorithm;
	char *jwt_secret;
	char *jwt_public_key; /* PEM, or a file that holds it */
	char *jwt_jwks_file;
	char *jwt_jwks_url;
	char *jwt_jwks_ca_file;
	int64_t jwt_jwks_refresh_s;
	int64_t jwt_jwks_timeout_ms;
	char *jwt_issuer;
	char *jwt_audience;
	int64_t jwt_clock_skew_s;
	char *jwt_skip_paths;
	char *jwt_role_claim;
	char *jwt_roles_claim;
	char *jwt_role_admin;
	char *jwt_role_read_write;
	char *jwt_role_read_only;
	char *jwt_role_write_only;
	bool tenancy_header;
	bool trusted_proxy;

	/* database */
	char *dsn;
	int64_t push_connections;
	int64_t read_connections;
	int64_t wait_connections;
	int64_t statement_timeout_ms;
	int64_t lock_timeout_ms;
	bool pg_ssl;
	bool pg_ssl_verify;
	char *pg_ssl_root_cert; /* PEM, or a file that holds it */

	/* engine */
	int64_t zstd_level;
	char *subscription_mode;
	int64_t pop_timeout_ms;
	int64_t poll_initial_ms;
	int64_t poll_max_ms;

	/* spool */
	char *spool_dir;
	int64_t spool_max_bytes;
	int64_t spool_file_records;

	/* encrypted queues */
	char *encryption_key;
	char *encryption_key_file;
	bool has_crypt_key;
	uint8_t crypt_key[32];

	/* logging */
	char *log_level;
	bool log_json;

	/* what to do */
	bool check_only;
} Conf;

/*
 * Reads flags, environment and file.  On a mistake it writes what is wrong to
 * stderr and returns false.  --help prints every setting and exits.
 */
extern bool conf_load(Conf *conf, int argc, char **argv);

#endif
