/*
 * auth.c
 *		Who may send a request: tokens, roles, and the tenant.
 */
#include "auth.h"

#include "keyring.h"
#include "protocol.h"
#include "route.h"
#include "worker.h"

#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>
#include <utlist.h>
#include <xxhash.h>

#define CACHE_SLOTS 1024 /* per thread; a token takes one */

enum
{
	ROLE_ADMIN = 1,
	ROLE_READ_WRITE = 2,
	ROLE_READ_ONLY = 4,
	ROLE_WRITE_ONLY = 8
};

/* A token that was found good. */
typedef struct KnownToken
{
	char *token; /* NULL: free slot */
	size_t len;
	unsigned generation; /* of the keys */
	JwtClaims claims;
} KnownToken;

typedef struct Waiting
{
	struct Waiting *prev, *next;
	Request *req;
	void (*again)(Request *req);
} Waiting;

struct Auth
{
	struct Worker *worker;
	JwtRules rules;
	uint64_t seed;	  /* of the slots: nobody outside knows who shares one */
	unsigned fetches; /* of the keyring, when last looked */
	Waiting *waiting;
	Jwt jwt; /* of the token that is being read */
	KnownToken known[CACHE_SLOTS];
};

bool
auth_setup(const Conf *conf)
{
	if (conf->tenancy_header && !conf->trusted_proxy)
	{
		fprintf(stderr, "queen-frontend: tenancy-header trusts whoever sets the header: "
						"set trusted-proxy too, when only a proxy that you trust can\n");
		return false;
	}
	return !conf->jwt_enabled || keyring_load(conf);
}

Auth *
auth_new(struct Worker *worker)
{
	const Conf *conf = worker->conf;
	Auth *auth = calloc(1, sizeof(*auth));

	if (auth == NULL || gnutls_rnd(GNUTLS_RND_NONCE, &auth->seed, sizeof(auth->seed)) < 0)
	{
		free(auth);
		return NULL;
	}
	auth->worker = worker;
	auth->rules = (JwtRules){.clock_skew = conf->jwt_clock_skew_s,
							 .issuer = conf->jwt_issuer,
							 .audience = conf->jwt_audience,
							 .role_claim = conf->jwt_role_claim,
							 .roles_claim = conf->jwt_roles_claim,
							 .role_names = {conf->jwt_role_admin, conf->jwt_role_read_write,
											conf->jwt_role_read_only, conf->jwt_role_write_only}};
	return auth;
}

static void
forget(KnownToken *known)
{
	free(known->token);
	free(known->claims.subject);
	memset(known, 0, sizeof(*known));
}

void
auth_free(Auth *auth)
{
	for (int i = 0; i < CACHE_SLOTS; i++)
		forget(&auth->known[i]);
	free(auth);
}

/* --- tokens ------------------------------------------------------------------ */

static double
wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static KnownToken *
slot_of(Auth *auth, Span token)
{
	return &auth->known[XXH3_64bits_withSeed(token.ptr, token.len, auth->seed) % CACHE_SLOTS];
}

static bool
is_known(const KnownToken *known, Span token)
{
	return known->token && known->len == token.len && known->generation == keyring_generation() &&
		   gnutls_memcmp(known->token, token.ptr, token.len) == 0;
}

static int
refuse(const char **error, int status, const char *text)
{
	*error = text;
	return status;
}

/* Verifies the token and puts it into its slot. */
static int
learn(Auth *auth, Span token, KnownToken *known, const char **error)
{
	unsigned generation = keyring_generation(); /* before the keys are looked at */
	JwtClaims claims;

	*error = jwt_read(token, &auth->jwt);
	if (*error)
		return 401;
	switch (keyring_verify(&auth->jwt))
	{
		case KEY_GOOD:
			break;
		case KEY_BAD_ALGORITHM:
			return refuse(error, 401, "unsupported token algorithm");
		case KEY_BAD_SIGNATURE:
			return refuse(error, 401, "bad token signature");
		case KEY_UNKNOWN:
			return refuse(error, 401, "unknown token key id");
		case KEY_UNAVAILABLE:
			return refuse(error, 500, "the keys of tokens could not be fetched");
		case KEY_WAIT:
			return AUTH_WAIT;
	}
	*error = jwt_read_claims(&auth->jwt, &auth->rules, wall_clock(), &claims);
	if (*error)
		return *error == jwt_out_of_memory ? 503 : 401;
	forget(known);
	known->token = malloc(token.len);
	known->len = token.len;
	known->generation = generation;
	known->claims = claims;
	if (known->token == NULL)
	{
		forget(known);
		return refuse(error, 503, jwt_out_of_memory);
	}
	memcpy(known->token, token.ptr, token.len);
	return 0;
}

/* "Bearer", in any case, and a token; or the token alone. */
static Span
bearer_token(const char *header)
{
	if (strncasecmp(header, "Bearer", 6) == 0 && header[6] == ' ')
		header += 7 + strspn(header + 7, " ");
	return span_of(header);
}

static bool
passes(RouteLevel level, unsigned roles)
{
	static const unsigned needed[] = {
		[LEVEL_READ_ONLY] = ROLE_READ_ONLY | ROLE_READ_WRITE | ROLE_ADMIN,
		[LEVEL_WRITE_ONLY] = ROLE_WRITE_ONLY | ROLE_READ_WRITE | ROLE_ADMIN,
		[LEVEL_READ_WRITE] = ROLE_READ_WRITE | ROLE_ADMIN,
		[LEVEL_ADMIN] = ROLE_ADMIN};

	return (needed[level] & roles) != 0;
}

static int
check_token(Auth *auth, Request *req, const char *header, const char **error)
{
	Span token;
	KnownToken *known;

	if (header == NULL || *header == '\0')
		return refuse(error, 401, "a token is required");
	token = bearer_token(header);
	known = slot_of(auth, token);
	if (!is_known(known, token))
	{
		int status = learn(auth, token, known, error);

		if (status)
			return status;
	}
	*error = jwt_check_time(&known->claims, wall_clock());
	if (*error)
		return 401;
	if (!passes(req->route->level, known->claims.roles))
		return refuse(error, 403, "Insufficient permissions");
	if (known->claims.subject && (req->subject = strdup(known->claims.subject)) == NULL)
		return refuse(error, 503, jwt_out_of_memory);
	return 0;
}

/* --- requests ------------------------------------------------------------------ */

/* Whether the path is the entry's; or below it, where that ends in a slash. */
static bool
path_fits(const Target *target, Span entry)
{
	bool prefix = entry.len > 1 && entry.ptr[entry.len - 1] == '/';
	const char *pos = entry.ptr;
	const char *end = entry.ptr + entry.len - prefix;
	int n = 0;

	while (pos < end && *pos == '/')
	{
		const char *next = memchr(pos + 1, '/', (size_t) (end - pos - 1));
		Span segment = {pos + 1, (size_t) ((next ? next : end) - pos - 1)};

		if (segment.len == 0)
			break; /* "/" alone */
		if (n == target->n_segments || !span_equals(target->segments[n++], segment))
			return false;
		pos = segment.ptr + segment.len;
	}
	return prefix ? target->n_segments > n : target->n_segments == n;
}

static bool
is_skipped(const Conf *conf, const Target *target)
{
	const char *pos = conf->jwt_skip_paths;

	while (*pos)
	{
		Span entry = {pos, strcspn(pos, ", ")};

		if (entry.len > 0 && *entry.ptr == '/' && path_fits(target, entry))
			return true;
		pos += entry.len + strspn(pos + entry.len, ", ");
	}
	return false;
}

static bool
read_tenant(Request *req, const char *header)
{
	return header == NULL || *header == '\0' || uuid_parse(header, strlen(header), &req->tenant);
}

int
auth_check(Auth *auth, Request *req, struct MHD_Connection *connection, const char **error)
{
	const Conf *conf = auth->worker->conf;

	if (conf->tenancy_header &&
		!read_tenant(req,
					 MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Queen-Tenant")))
		return refuse(error, 400, "x-queen-tenant is not a UUID");
	if (!conf->jwt_enabled || req->route->level == LEVEL_PUBLIC || is_skipped(conf, &req->target))
		return 0;
	return check_token(auth, req,
					   MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization"),
					   error);
}

/* --- waiting for keys ------------------------------------------------------------ */

void
auth_drain(Auth *auth)
{
	Waiting *list = auth->waiting;
	Waiting *waiting, *next;

	auth->waiting = NULL; /* who must wait again parks again */
	DL_FOREACH_SAFE (list, waiting, next)
	{
		waiting->again(waiting->req);
		free(waiting);
	}
}

void
auth_park(Auth *auth, Request *req, void (*again)(Request *req))
{
	Waiting *waiting = calloc(1, sizeof(*waiting));

	if (waiting == NULL)
	{
		http_reply_error(req, 503, "out of memory");
		return;
	}
	waiting->req = req;
	waiting->again = again;
	DL_APPEND(auth->waiting, waiting);
}

void
auth_tick(Auth *auth)
{
	if (auth->waiting && auth->fetches != keyring_fetches())
	{
		auth->fetches = keyring_fetches();
		auth_drain(auth);
	}
}
