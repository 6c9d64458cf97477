/*
 * keyring.c
 *		The keys that tokens are verified with, shared by all threads.
 */
#include "keyring.h"

#include "buf.h"
#include "clock.h"
#include "file.h"
#include "jwk.h"
#include "log.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define REFRESH_MIN_MS 5000 /* between two fetches */

#define HS_ALGORITHMS (1U << JWT_HS256 | 1U << JWT_HS384 | 1U << JWT_HS512)
#define RS_ALGORITHMS (1U << JWT_RS256 | 1U << JWT_RS384 | 1U << JWT_RS512)
#define ALL_ALGORITHMS ((1U << N_JWT_ALGORITHMS) - 1)
#define PUBLIC_KEY_ALGORITHMS (ALL_ALGORITHMS & ~HS_ALGORITHMS)

static struct
{
	const Conf *conf;
	unsigned algorithms; /* that a token may have */
	JwkSet *pem;

	pthread_rwlock_t lock; /* protects "set" */
	JwkSet *set;
	atomic_uint generation;

	/* The fetching thread's.  "mutex" protects what follows it. */
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	bool started;
	bool fetching;
	bool wanted;
	int64_t next_at;	/* of the fetch after this one */
	int64_t allowed_at; /* before it, nobody's wish counts */
	atomic_bool stop;
	atomic_uint fetches;
} ring = {.lock = PTHREAD_RWLOCK_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER};

/* --- loading ----------------------------------------------------------------- */

static bool
complain(const char *setting, const char *problem)
{
	fprintf(stderr, "queen-frontend: %s %s\n", setting, problem);
	return false;
}

static bool
load_pem(const Conf *conf)
{
	const char *error = NULL;
	Buf file = {0};
	const char *text = conf->jwt_public_key;

	if (*text == '\0')
		return true;
	if (strncmp(text, "-----BEGIN", 10) != 0)
	{
		error = file_read(text, &file);
		text = file.data;
	}
	if (error == NULL)
		ring.pem = jwk_set_from_pem(text, &error);
	buf_free(&file);
	return error ? complain("jwt-public-key", error) : true;
}

static JwkSet *
read_set_file(const char **error)
{
	Buf file = {0};
	JwkSet *set = NULL;

	*error = file_read(ring.conf->jwt_jwks_file, &file);
	if (*error == NULL)
		set = jwk_set_from_json(file.data, file.len - 1, error);
	buf_free(&file);
	return set;
}

static bool
load_set_file(const Conf *conf)
{
	const char *error = NULL;

	if (*conf->jwt_jwks_file)
		ring.set = read_set_file(&error);
	return error ? complain("jwt-jwks-file", error) : true;
}

static unsigned
configured_algorithms(const Conf *conf)
{
	JwtAlgorithm algorithm;

	if (!jwt_algorithm_parse(conf->jwt_algorithm, &algorithm))
		return ALL_ALGORITHMS; /* auto */
	return algorithm == JWT_RS256 ? RS_ALGORITHMS : 1U << algorithm;
}

/* What the keys that were loaded can verify; a set that is still to be fetched, anything. */
static unsigned
loaded_algorithms(const Conf *conf)
{
	unsigned algorithms = *conf->jwt_secret ? HS_ALGORITHMS : 0;

	if (ring.pem)
		algorithms |= jwk_set_algorithms(ring.pem);
	if (ring.set)
		algorithms |= jwk_set_algorithms(ring.set);
	if (*conf->jwt_jwks_url)
		algorithms |= PUBLIC_KEY_ALGORITHMS;
	return algorithms;
}

static bool
check_settings(const Conf *conf)
{
	const char *url = conf->jwt_jwks_url;

	if (*url && strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
		return complain("jwt-jwks-url", "is neither an http nor an https URL");
	if (*url && *conf->jwt_jwks_file)
		return complain("jwt-jwks-url", "and jwt-jwks-file are both set");
	if (strncmp(conf->jwt_secret, "-----BEGIN", 10) == 0)
		return complain("jwt-secret",
						"holds a key in PEM, which is not secret: set jwt-public-key");
	return true;
}

bool
keyring_load(const Conf *conf)
{
	char problem[160];

	ring.conf = conf;
	if (!check_settings(conf) || !load_pem(conf) || !load_set_file(conf))
		return false;
	ring.algorithms = configured_algorithms(conf) & loaded_algorithms(conf);
	if (ring.algorithms)
	{
		/* The file may hold keys of other kinds when it is read again. */
		if (ring.set)
			ring.algorithms |= configured_algorithms(conf) & PUBLIC_KEY_ALGORITHMS;
		return true;
	}
	snprintf(problem, sizeof(problem), "is %s, but there is no key for it: set %s",
			 conf->jwt_algorithm,
			 configured_algorithms(conf) & ~HS_ALGORITHMS
				 ? "jwt-public-key, jwt-jwks-file or jwt-jwks-url"
				 : "jwt-secret");
	return complain("jwt-algorithm", problem);
}

static void
replace_set(JwkSet *set)
{
	JwkSet *old;

	pthread_rwlock_wrlock(&ring.lock);
	old = ring.set;
	ring.set = set;
	pthread_rwlock_unlock(&ring.lock);
	atomic_fetch_add(&ring.generation, 1);
	jwk_set_free(old);
}

void
keyring_reload(void)
{
	const char *error;
	JwkSet *set;

	if (ring.conf == NULL || *ring.conf->jwt_jwks_file == '\0')
		return;
	set = read_set_file(&error);
	if (set)
		replace_set(set);
	else
		log_event(LOG_LEVEL_ERROR, "could not reload the keys of tokens", "file",
				  ring.conf->jwt_jwks_file, "error", error, NULL);
}

/* --- fetching ------------------------------------------------------------------ */

static size_t
on_data(char *data, size_t size, size_t n, void *arg)
{
	Buf *body = arg;

	if (body->len + size * n > FILE_MAX_BYTES)
		return 0;
	buf_append(body, data, size * n);
	return body->failed ? 0 : size * n;
}

/* A fetch ends early when the process does. */
static int
on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	(void) arg, (void) a, (void) b, (void) c, (void) d;
	return atomic_load(&ring.stop);
}

/* NULL, or why there is no answer in "body". */
static const char *
get(const Conf *conf, Buf *body)
{
	CURL *curl = curl_easy_init();
	CURLcode code;
	long status = 0;

	if (curl == NULL)
		return "out of memory";
	curl_easy_setopt(curl, CURLOPT_URL, conf->jwt_jwks_url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long) conf->jwt_jwks_timeout_ms);
	curl_easy_setopt(curl, CURLOPT_USERAGENT, "queen-frontend/" QUEEN_VERSION);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	if (*conf->jwt_jwks_ca_file)
		curl_easy_setopt(curl, CURLOPT_CAINFO, conf->jwt_jwks_ca_file);
	code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(curl);
	if (code == CURLE_WRITE_ERROR)
		return "the answer is larger than 1 MiB";
	if (code != CURLE_OK)
		return curl_easy_strerror(code);
	return status == 200 ? NULL : "the answer's status is not 200";
}

static void
fetch(bool *failed)
{
	Buf body = {0};
	JwkSet *set = NULL;
	const char *error = get(ring.conf, &body);

	if (error == NULL)
		set = jwk_set_from_json(body.data ? body.data : "", body.len, &error);
	if (set)
		replace_set(set);
	if (set == NULL && !*failed)
		log_event(LOG_LEVEL_WARN, "could not fetch the keys of tokens", "url",
				  ring.conf->jwt_jwks_url, "error", error, NULL);
	if (set && *failed)
		log_event(LOG_LEVEL_INFO, "fetched the keys of tokens again", NULL);
	*failed = set == NULL;
	buf_free(&body);
}

/* With "mutex" held: sleeps until it is time, or until a fetch is wanted. */
static void
wait_for_turn(void)
{
	while (!atomic_load(&ring.stop) && !ring.wanted && clock_ms() < ring.next_at)
	{
		struct timespec until = {ring.next_at / 1000, ring.next_at % 1000 * 1000000};

		pthread_cond_timedwait(&ring.wake, &ring.mutex, &until);
	}
}

static void *
fetch_main(void *arg)
{
	bool failed = false;

	(void) arg;
	pthread_mutex_lock(&ring.mutex);
	while (!atomic_load(&ring.stop))
	{
		ring.fetching = true;
		ring.wanted = false;
		ring.allowed_at = clock_ms() + REFRESH_MIN_MS;
		pthread_mutex_unlock(&ring.mutex);
		fetch(&failed);
		pthread_mutex_lock(&ring.mutex);
		ring.fetching = false;
		ring.next_at =
			clock_ms() + (failed ? REFRESH_MIN_MS : ring.conf->jwt_jwks_refresh_s * 1000);
		atomic_fetch_add(&ring.fetches, 1);
		wait_for_turn();
	}
	pthread_mutex_unlock(&ring.mutex);
	return NULL;
}

bool
keyring_start(void)
{
	pthread_condattr_t attributes;

	if (ring.conf == NULL || *ring.conf->jwt_jwks_url == '\0')
		return true;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return false;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&ring.wake, &attributes);
	pthread_condattr_destroy(&attributes);
	ring.fetching = true;
	ring.started = pthread_create(&ring.thread, NULL, fetch_main, NULL) == 0;
	return ring.started;
}

void
keyring_stop(void)
{
	if (ring.started)
	{
		pthread_mutex_lock(&ring.mutex);
		atomic_store(&ring.stop, true);
		pthread_cond_signal(&ring.wake);
		pthread_mutex_unlock(&ring.mutex);
		pthread_join(ring.thread, NULL);
		curl_global_cleanup();
	}
	jwk_set_free(ring.set);
	jwk_set_free(ring.pem);
}

/* Whether a fetch is under way, which a key that is not there may hope for. */
static bool
want_fetch(void)
{
	bool wait;

	if (!ring.started)
		return false;
	pthread_mutex_lock(&ring.mutex);
	if (!ring.fetching && clock_ms() >= ring.allowed_at)
	{
		ring.wanted = true;
		pthread_cond_signal(&ring.wake);
	}
	wait = ring.fetching || ring.wanted;
	pthread_mutex_unlock(&ring.mutex);
	return wait;
}

/* --- verifying ------------------------------------------------------------------- */

static KeyVerdict
verify_with(const JwkSet *set, Span key_id, const Jwt *jwt)
{
	const Jwk *key = set ? jwk_find(set, jwt->algorithm, key_id) : NULL;

	if (key == NULL)
		return KEY_UNKNOWN;
	return jwk_verify(key, jwt) ? KEY_GOOD : KEY_BAD_SIGNATURE;
}

/* The key in PEM has no id: it is for tokens that name none, and for all when there is no set. */
static bool
is_for_pem(const Jwt *jwt)
{
	bool set = *ring.conf->jwt_jwks_url || *ring.conf->jwt_jwks_file;

	return ring.pem && (jwt->key_id.ptr == NULL || !set) &&
		   (jwk_set_algorithms(ring.pem) & 1U << jwt->algorithm);
}

static KeyVerdict
verify_with_set(const Jwt *jwt)
{
	KeyVerdict verdict;
	bool empty;

	pthread_rwlock_rdlock(&ring.lock);
	verdict = verify_with(ring.set, jwt->key_id, jwt);
	empty = ring.set == NULL;
	pthread_rwlock_unlock(&ring.lock);
	if (verdict != KEY_UNKNOWN)
		return verdict;
	if (want_fetch())
		return KEY_WAIT;
	return ring.started && empty ? KEY_UNAVAILABLE : KEY_UNKNOWN;
}

KeyVerdict
keyring_verify(const Jwt *jwt)
{
	unsigned algorithm = 1U << jwt->algorithm;

	if (!(ring.algorithms & algorithm))
		return KEY_BAD_ALGORITHM;
	if (algorithm & HS_ALGORITHMS)
		return jwk_verify_secret(span_of(ring.conf->jwt_secret), jwt) ? KEY_GOOD
																	  : KEY_BAD_SIGNATURE;
	if (is_for_pem(jwt))
		return verify_with(ring.pem, (Span){NULL, 0}, jwt);
	return verify_with_set(jwt);
}

unsigned
keyring_generation(void)
{
	return atomic_load(&ring.generation);
}

unsigned
keyring_fetches(void)
{
	return atomic_load(&ring.fetches);
}
