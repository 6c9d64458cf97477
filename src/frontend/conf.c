/*
 * conf.c
 *		The table of settings, and where their values come from.
 */
#include "conf.h"

#include "crypt.h"
#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <libpq-fe.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

typedef enum SettingType
{
	SETTING_INT,
	SETTING_BOOL,
	SETTING_TEXT,
	SETTING_CHOICE
} SettingType;

typedef struct Setting
{
	const char *flag;
	const char *env[2];
	SettingType type;
	size_t offset; /* in Conf */
	const char *boot;
	int64_t min, max;
	const char *choices; /* separated by '|' */
	const char *help;
} Setting;

#define FIELD(name) offsetof(Conf, name)

/* name, field, boot value, range or choices, help, environment variables */
#define INT(name, field, boot, min, max, help, ...)                                                \
	{                                                                                              \
		name, {__VA_ARGS__}, SETTING_INT, FIELD(field), boot, min, max, NULL, help                 \
	}
#define BOOL(name, field, boot, help, ...)                                                         \
	{                                                                                              \
		name, {__VA_ARGS__}, SETTING_BOOL, FIELD(field), boot, 0, 0, NULL, help                    \
	}
#define TEXT(name, field, boot, help, ...)                                                         \
	{                                                                                              \
		name, {__VA_ARGS__}, SETTING_TEXT, FIELD(field), boot, 0, 0, NULL, help                    \
	}
#define CHOICE(name, field, boot, choices, help, ...)                                              \
	{                                                                                              \
		name, {__VA_ARGS__}, SETTING_CHOICE, FIELD(field), boot, 0, 0, choices, help               \
	}

static const Setting settings[] = {
	INT("port", port, "6632", 0, 65535,
		"TCP port of the HTTP listener; 0 picks a free one and logs it", "PORT"),
	TEXT("bind", bind_addr, "127.0.0.1",
		 "IP address to listen on; anything but loopback is open to the network", "QUEEN_BIND_ADDR",
		 "HOST"),
	INT("threads", threads, "0", 0, 64, "event loops; 0 is one per two cores, at least one",
		"QUEEN_THREADS"),
	INT("max-connections", max_connections, "16384", 1, 1000000,
		"client connections, over all threads; more are refused", "QUEEN_MAX_CONNECTIONS"),
	INT("max-body-bytes", max_body_bytes, "67108864", 1024, 67108864,
		"largest request body, bytes; a larger one gets 413", "QUEEN_MAX_BODY_BYTES"),
	INT("max-buffered-bytes", max_buffered_bytes, "1073741824", 67108864, INT64_MAX / 2,
		"bytes of requests and answers that a thread holds at once; beyond it 503",
		"QUEEN_MAX_BUFFERED_BYTES"),
	INT("header-timeout", header_timeout_ms, "10000", 100, 600000,
		"milliseconds for a request line and its header block, then 408",
		"QUEEN_HEADER_TIMEOUT_MS"),
	INT("body-timeout", body_timeout_ms, "10000", 100, 600000,
		"milliseconds for each 16 KiB of a body; an answer gets that and 1 s for each 64 KB",
		"QUEEN_BODY_TIMEOUT_MS"),
	INT("idle-timeout", idle_timeout_ms, "75000", 100, 86400000,
		"milliseconds a kept-alive connection may stay silent between requests",
		"QUEEN_IDLE_TIMEOUT_MS"),
	INT("shutdown-timeout", shutdown_timeout_ms, "10000", 0, 600000,
		"milliseconds after SIGTERM for requests in flight", "QUEEN_SHUTDOWN_TIMEOUT_MS"),
	TEXT("tls-cert", tls_cert, "",
		 "file with the listener's certificate and its chain, in PEM; empty: no TLS",
		 "QUEEN_TLS_CERT"),
	TEXT("tls-key", tls_key, "", "file with the certificate's key, in PEM", "QUEEN_TLS_KEY"),
	BOOL("jwt", jwt_enabled, "false", "let only requests with a token in, by their roles",
		 "JWT_ENABLED"),
	CHOICE("jwt-algorithm", jwt_algorithm, "HS256",
		   "HS256|HS384|HS512|RS256|RS384|RS512|PS256|PS384|PS512|ES256|ES384|ES512|EdDSA|auto",
		   "algorithm of tokens; RS256 takes RS384 and RS512 too, auto what there is a key for",
		   "JWT_ALGORITHM"),
	TEXT("jwt-secret", jwt_secret, "", "secret of the HS algorithms; as a flag it shows in ps",
		 "JWT_SECRET"),
	TEXT("jwt-public-key", jwt_public_key, "",
		 "public key or certificate of the other algorithms: PEM, or the name of a file",
		 "JWT_PUBLIC_KEY"),
	TEXT("jwt-jwks-file", jwt_jwks_file, "", "file with a JSON Web Key set", "JWT_JWKS_FILE"),
	TEXT("jwt-jwks-url", jwt_jwks_url, "", "http or https URL of a JSON Web Key set",
		 "JWT_JWKS_URL"),
	TEXT("jwt-jwks-ca-file", jwt_jwks_ca_file, "",
		 "certificates that vouch for that URL, in PEM; empty: the system's", "JWT_JWKS_CA_FILE"),
	INT("jwt-jwks-refresh", jwt_jwks_refresh_s, "3600", 5, 604800,
		"seconds after which the set is fetched again", "JWT_JWKS_REFRESH_INTERVAL"),
	INT("jwt-jwks-timeout", jwt_jwks_timeout_ms, "5000", 100, 60000,
		"milliseconds that fetching it may take", "JWT_JWKS_TIMEOUT_MS"),
	TEXT("jwt-issuer", jwt_issuer, "", "what a token's iss must be; empty: anything", "JWT_ISSUER"),
	TEXT("jwt-audience", jwt_audience, "", "what a token's aud must name; empty: anything",
		 "JWT_AUDIENCE"),
	INT("jwt-clock-skew", jwt_clock_skew_s, "30", 0, 86400,
		"seconds that a token's times may be off", "JWT_CLOCK_SKEW"),
	TEXT("jwt-skip-paths", jwt_skip_paths, "/health,/metrics/prometheus,/metrics,/",
		 "paths that need no token; one that ends in / stands for what is below it",
		 "JWT_SKIP_PATHS"),
	TEXT("jwt-role-claim", jwt_role_claim, "role", "claim that holds a role", "JWT_ROLES_CLAIM"),
	TEXT("jwt-roles-claim", jwt_roles_claim, "roles", "claim that holds an array of roles",
		 "JWT_ROLES_ARRAY_CLAIM"),
	TEXT("jwt-role-admin", jwt_role_admin, "admin", "name of the role that may do anything",
		 "JWT_ROLE_ADMIN"),
	TEXT("jwt-role-read-write", jwt_role_read_write, "read-write",
		 "name of the role of producers that also consume", "JWT_ROLE_READ_WRITE"),
	TEXT("jwt-role-read-only", jwt_role_read_only, "read-only",
		 "name of the role that looks and changes nothing", "JWT_ROLE_READ_ONLY"),
	TEXT("jwt-role-write-only", jwt_role_write_only, "write-only",
		 "name of the role that pushes and no more", "JWT_ROLE_WRITE_ONLY"),
	BOOL("tenancy-header", tenancy_header, "false",
		 "take the tenant from the header x-queen-tenant", "QUEEN_TENANCY_HEADER"),
	BOOL("trusted-proxy", trusted_proxy, "false",
		 "only a proxy that sets this header reaches the listener", "QUEEN_KV_TRUSTED_PROXY"),
	TEXT("dsn", dsn, "",
		 "libpq connection string; empty uses PGHOST, PGPORT, ... or their PG_* spellings",
		 "QUEEN_DSN"),
	INT("push-connections", push_connections, "2", 1, 64,
		"database connections per thread for pushes", "QUEEN_PUSH_CONNECTIONS"),
	INT("read-connections", read_connections, "3", 1, 64,
		"database connections per thread for pops and acknowledgements", "QUEEN_READ_CONNECTIONS"),
	INT("wait-connections", wait_connections, "2", 1, 64,
		"database connections per thread for entries that must wait for a lock",
		"QUEEN_WAIT_CONNECTIONS"),
	INT("statement-timeout", statement_timeout_ms, "30000", 100, 3600000,
		"milliseconds a database call may run", "QUEEN_STMT_TIMEOUT_MS", "DB_STATEMENT_TIMEOUT"),
	INT("lock-timeout", lock_timeout_ms, "5000", 10, 3600000,
		"milliseconds a database call may wait for a row lock, then 503", "QUEEN_LOCK_TIMEOUT_MS"),
	BOOL("pg-ssl", pg_ssl, "false", "connect to PostgreSQL with TLS only; sslmode in libpq's terms",
		 "PG_USE_SSL"),
	BOOL("pg-ssl-verify", pg_ssl_verify, "true", "and only to a server whose certificate is good",
		 "PG_SSL_REJECT_UNAUTHORIZED"),
	TEXT("pg-ssl-root-cert", pg_ssl_root_cert, "",
		 "certificates that vouch for it: PEM, or the name of a file; empty: the system's",
		 "PG_SSL_ROOT_CERT"),
	INT("zstd-level", zstd_level, "3", 1, 19, "compression level of segments",
		"QUEEN_V2_ZSTD_LEVEL"),
	TEXT("encryption-key", encryption_key, "",
		 "AES-256 key of encrypted queues, 64 hex digits; as a flag it shows in ps",
		 "QUEEN_ENCRYPTION_KEY"),
	TEXT("encryption-key-file", encryption_key_file, "",
		 "file that holds this key, readable by its owner only", "QUEEN_ENCRYPTION_KEY_FILE"),
	TEXT("spool-dir", spool_dir, "/var/lib/queen/buffers",
		 "directory for pushes that wait for the database; empty: they fail instead",
		 "FILE_BUFFER_DIR"),
	INT("spool-max-bytes", spool_max_bytes, "1073741824", 1048576, INT64_MAX / 2,
		"bytes that may wait there; beyond it pushes fail", "QUEEN_SPOOL_MAX_BYTES"),
	INT("spool-file-messages", spool_file_records, "10000", 1, 10000000,
		"messages of one file there", "FILE_BUFFER_EVENTS_PER_FILE"),
	CHOICE("subscription-mode", subscription_mode, "new", "new|all",
		   "where a named group starts when its first pop does not say",
		   "DEFAULT_SUBSCRIPTION_MODE"),
	INT("pop-timeout", pop_timeout_ms, "30000", 1, 300000,
		"milliseconds a waiting pop parks when it does not say", "DEFAULT_TIMEOUT",
		"POP_DEFAULT_TIMEOUT_MS"),
	INT("poll-initial", poll_initial_ms, "100", 10, 60000,
		"milliseconds between the first looks of parked pops that nothing woke",
		"POP_WAIT_INITIAL_INTERVAL_MS"),
	INT("poll-max", poll_max_ms, "1000", 10, 60000,
		"longest interval between such looks, milliseconds", "POP_WAIT_MAX_INTERVAL_MS"),
	CHOICE("log-level", log_level, "info", "error|warn|info|debug",
		   "least severe event that is logged", "LOG_LEVEL"),
	BOOL("log-json", log_json, "false", "log JSON lines instead of text", "QUEEN_LOG_JSON"),
};

#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Names of other Queen servers that have no meaning here; naming one gets a warning. */
static const char *const foreign_env[] = {"NUM_WORKERS",
										  "DB_POOL_SIZE",
										  "QUEEN_APPLY_SCHEMA",
										  "DEFAULT_BATCH_SIZE",
										  "POP_WAIT_BACKOFF_THRESHOLD",
										  "POP_WAIT_BACKOFF_MULTIPLIER",
										  "QUEEN_POP_AUTOPILOT",
										  "QUEEN_POP_FUSION",
										  "QUEEN_POP_PENDING_GATE",
										  "QUEEN_V2_FUSION_SHARDS",
										  "QUEEN_V2_FUSION_HOLD_MS",
										  "QUEEN_V2_FUSION_MAX_INFLIGHT",
										  "QUEEN_V2_BUNDLE_MAX",
										  "QUEEN_ACK_FUSION",
										  "QUEEN_ACK_REGISTRY",
										  "QUEEN_DEDUP_CACHE",
										  "QUEEN_HOTLIST",
										  "RETENTION_INTERVAL",
										  "RETENTION_BATCH_SIZE",
										  "RETENTION_PARALLELISM",
										  "EVICTION_INTERVAL",
										  "EVICTION_BATCH_SIZE",
										  "PARTITION_CLEANUP_DAYS",
										  "METRICS_RETENTION_DAYS",
										  "STATS_INTERVAL_MS",
										  "QUEEN_SYNC_ENABLED",
										  "QUEEN_SYNC_SECRET",
										  "QUEEN_MESH_PORT",
										  "QUEEN_MESH_PEERS",
										  "QUEEN_UDP_NOTIFY_PORT",
										  "QUEEN_UDP_PEERS",
										  "QUEEN_SWEEPER",
										  "FILE_BUFFER_FLUSH_MS",
										  "FILE_BUFFER_MAX_BATCH"};

static const Setting *
find_setting(const char *flag, size_t len)
{
	for (size_t i = 0; i < N_SETTINGS; i++)
		if (strlen(settings[i].flag) == len && strncmp(settings[i].flag, flag, len) == 0)
			return &settings[i];
	return NULL;
}

static bool
parse_bool(const char *text, bool *out)
{
	static const char *const yes[] = {"true", "1", "yes", "on"};
	static const char *const no[] = {"false", "0", "no", "off"};

	for (int i = 0; i < 4; i++)
	{
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0)
		{
			*out = strcasecmp(text, yes[i]) == 0;
			return true;
		}
	}
	return false;
}

static bool
is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *p = choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
	{
		size_t n = strcspn(p, "|");

		if (n == len && strncasecmp(p, text, n) == 0)
			return true;
	}
	return false;
}

/* "source" names the flag, variable or line for the message. */
static bool
set_value(Conf *conf, const Setting *s, const char *text, const char *source)
{
	void *field = (char *) conf + s->offset;

	switch (s->type)
	{
		case SETTING_INT:
		{
			char *end;
			long long value;

			errno = 0;
			value = strtoll(text, &end, 10);
			if (*text == '\0' || *end || errno || value < s->min || value > s->max)
			{
				fprintf(stderr, "queen-frontend: %s: \"%s\" is not a number from %lld to %lld\n",
						source, text, (long long) s->min, (long long) s->max);
				return false;
			}
			*(int64_t *) field = value;
			return true;
		}
		case SETTING_BOOL:
			if (parse_bool(text, field))
				return true;
			fprintf(stderr, "queen-frontend: %s: \"%s\" is neither true nor false\n", source, text);
			return false;
		case SETTING_CHOICE:
			if (!is_choice(s->choices, text))
			{
				fprintf(stderr, "queen-frontend: %s: \"%s\" is not one of %s\n", source, text,
						s->choices);
				return false;
			}
			/* FALLTHROUGH */
		case SETTING_TEXT:
			free(*(char **) field);
			*(char **) field = strdup(text);
			return true;
	}
	return false;
}

static char *
trim(char *s)
{
	char *end;

	while (isspace((unsigned char) *s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char) end[-1]))
		end--;
	*end = '\0';
	return s;
}

/* Lines "flag = value"; '#' starts a comment line. */
static bool
load_file(Conf *conf, const char *path)
{
	char line[4096];
	char source[4200];
	int number = 0;
	bool ok = true;
	FILE *file = fopen(path, "r");

	if (file == NULL)
	{
		fprintf(stderr, "queen-frontend: could not open configuration file \"%s\": %s\n", path,
				strerror(errno));
		return false;
	}
	while (fgets(line, sizeof(line), file))
	{
		char *key = trim(line);
		char *eq = strchr(key, '=');
		const Setting *s;

		number++;
		if (*key == '\0' || *key == '#')
			continue;
		snprintf(source, sizeof(source), "%s line %d", path, number);
		if (eq)
			*eq = '\0';
		key = trim(key);
		s = eq ? find_setting(key, strlen(key)) : NULL;
		if (s == NULL)
		{
			fprintf(stderr, "queen-frontend: %s: unknown setting \"%s\"\n", source, key);
			ok = false;
			continue;
		}
		ok = set_value(conf, s, trim(eq + 1), source) && ok;
	}
	fclose(file);
	return ok;
}

static bool
load_environment(Conf *conf)
{
	bool ok = true;

	for (size_t i = 0; i < N_SETTINGS; i++)
	{
		for (int j = 0; j < 2 && settings[i].env[j]; j++)
		{
			const char *value = getenv(settings[i].env[j]);

			if (value == NULL)
				continue;
			ok = set_value(conf, &settings[i], value, settings[i].env[j]) && ok;
			break;
		}
	}
	return ok;
}

static void
warn_foreign_environment(void)
{
	char names[2048] = "";

	for (size_t i = 0; i < sizeof(foreign_env) / sizeof(foreign_env[0]); i++)
	{
		if (getenv(foreign_env[i]) == NULL)
			continue;
		if (*names)
			strncat(names, ", ", sizeof(names) - strlen(names) - 1);
		strncat(names, foreign_env[i], sizeof(names) - strlen(names) - 1);
	}
	if (*names)
		log_event(LOG_LEVEL_WARN, "these variables have no meaning here and are ignored", "names",
				  names, NULL);
}

/*
 * The PG_* spellings of other Queen servers stand in for libpq's own
 * variables, where those are not set.
 */
static void
adopt_pg_spellings(void)
{
	static const char *const pairs[][2] = {
		{"PG_HOST", "PGHOST"},		   {"PG_PORT", "PGPORT"},		  {"PG_USER", "PGUSER"},
		{"PG_PASSWORD", "PGPASSWORD"}, {"PG_DATABASE", "PGDATABASE"}, {"PG_DB", "PGDATABASE"}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
	{
		const char *value = getenv(pairs[i][0]);

		if (value)
			setenv(pairs[i][1], value, 0);
	}
}

/* PEM as a file, which is how libpq wants it; it lives as long as the process. */
static const char *
file_of_pem(const char *pem)
{
	static char path[64];
	int fd = memfd_create("root.crt", 0);

	if (fd < 0 || write(fd, pem, strlen(pem)) < (ssize_t) strlen(pem))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return path;
}

/* The settings of TLS stand in for libpq's own variables, where those are not set. */
static void
adopt_pg_ssl(const Conf *conf)
{
	const char *root = conf->pg_ssl_root_cert;

	if (!conf->pg_ssl)
		return;
	setenv("PGSSLMODE", conf->pg_ssl_verify ? "verify-full" : "require", 0);
	if (!conf->pg_ssl_verify)
		return;
	if (*root == '\0')
		root = "/etc/ssl/certs/ca-certificates.crt";
	else if (strncmp(root, "-----BEGIN", 10) == 0)
		root = file_of_pem(root);
	setenv("PGSSLROOTCERT", root, 0);
}

static void
print_help(void)
{
	printf("queen-frontend: HTTP front end of the queen message queue\n\n"
		   "usage: queen-frontend [--config FILE] [--check] [--SETTING=VALUE ...]\n\n"
		   "  --config FILE   read settings from lines \"setting = value\"\n"
		   "  --check         check the settings and exit\n"
		   "  --help          this text\n\n"
		   "settings (environment variable; default):\n");
	for (size_t i = 0; i < N_SETTINGS; i++)
	{
		const Setting *s = &settings[i];

		printf("  --%-20s %s\n%24s(%s%s%s; %s%s)\n", s->flag, s->help, "", s->env[0],
			   s->env[1] ? " or " : "", s->env[1] ? s->env[1] : "", "default ",
			   *s->boot ? s->boot : "empty");
	}
}

/* One argument; *used is set when it consumed the next one as its value. */
static bool
set_from_argument(Conf *conf, const char *arg, const char *next, bool *used)
{
	const char *eq = strchr(arg, '=');
	size_t len = eq ? (size_t) (eq - arg) : strlen(arg);
	const Setting *s;

	*used = false;
	s = strncmp(arg, "--", 2) == 0 ? find_setting(arg + 2, len - 2) : NULL;
	if (s == NULL)
	{
		fprintf(stderr, "queen-frontend: unknown argument \"%s\" (try --help)\n", arg);
		return false;
	}
	if (eq)
		return set_value(conf, s, eq + 1, arg);
	if (next == NULL)
	{
		fprintf(stderr, "queen-frontend: %s needs a value\n", arg);
		return false;
	}
	*used = true;
	return set_value(conf, s, next, arg);
}

/* The text of the key is not kept. */
static bool
load_encryption_key(Conf *conf)
{
	const char *error;

	if (*conf->encryption_key && *conf->encryption_key_file)
		error = "encryption-key and encryption-key-file are both set";
	else if (*conf->encryption_key_file)
		error = crypt_key_from_file(conf->encryption_key_file, conf->crypt_key);
	else if (*conf->encryption_key)
		error = crypt_key_from_text(span_of(conf->encryption_key), conf->crypt_key);
	else
		return true;
	explicit_bzero(conf->encryption_key, strlen(conf->encryption_key));
	if (error)
		fprintf(stderr, "queen-frontend: %s\n", error);
	conf->has_crypt_key = error == NULL;
	return conf->has_crypt_key;
}

/* What no setting shows by itself.  The text of a DSN may be secret. */
static bool
check_settings(const Conf *conf)
{
	PQconninfoOption *dsn = PQconninfoParse(conf->dsn, NULL);

	if (dsn == NULL)
	{
		fprintf(stderr, "queen-frontend: dsn is not a connection string as libpq reads it\n");
		return false;
	}
	PQconninfoFree(dsn);
	if (conf->poll_initial_ms > conf->poll_max_ms)
	{
		fprintf(stderr, "queen-frontend: poll-initial is larger than poll-max\n");
		return false;
	}
	return true;
}

bool
conf_load(Conf *conf, int argc, char **argv)
{
	const char *file = NULL;
	bool ok = true;
	bool used;

	memset(conf, 0, sizeof(*conf));
	for (size_t i = 0; i < N_SETTINGS; i++)
		set_value(conf, &settings[i], settings[i].boot, settings[i].flag);

	for (int i = 1; i < argc; i++)
	{
		if (strcmp(argv[i], "--help") == 0)
		{
			print_help();
			exit(0);
		}
		if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
			file = argv[++i];
		else if (strncmp(argv[i], "--config=", 9) == 0)
			file = argv[i] + 9;
	}
	if (file)
		ok = load_file(conf, file);
	ok = load_environment(conf) && ok;

	for (int i = 1; i < argc; i++)
	{
		if (strcmp(argv[i], "--check") == 0)
			conf->check_only = true;
		else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
			i++;
		else if (strncmp(argv[i], "--config=", 9) != 0)
		{
			ok = set_from_argument(conf, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used) && ok;
			i += used;
		}
	}
	ok = ok && check_settings(conf) && load_encryption_key(conf);
	if (!ok)
		return false;
	log_setup(conf->log_level, conf->log_json);
	warn_foreign_environment();
	adopt_pg_spellings();
	adopt_pg_ssl(conf);
	return true;
}
