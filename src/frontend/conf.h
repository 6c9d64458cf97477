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

	/* database */
	char *dsn;
	int64_t push_connections;
	int64_t read_connections;
	int64_t wait_connections;
	int64_t statement_timeout_ms;
	int64_t lock_timeout_ms;

	/* engine */
	int64_t zstd_level;
	char *subscription_mode;
	int64_t pop_timeout_ms;
	int64_t poll_initial_ms;
	int64_t poll_max_ms;

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
