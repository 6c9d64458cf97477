/*
 * auth.h
 *		Who may send a request: tokens, roles, and the tenant.
 *
 * Of one thread.  Tokens that were found good are remembered, so that each is
 * verified once: a table of fixed size, never past the token's own time or the
 * replacement of the keys.
 */
#ifndef QUEEN_AUTH_H
#define QUEEN_AUTH_H

#include "conf.h"
#include "http.h"

#include <microhttpd.h>

struct Worker;
typedef struct Auth Auth;

#define AUTH_WAIT (-1) /* ask again with auth_park() */

/* Loads keys.  False, with the reason on stderr, when the settings do not fit together. */
extern bool auth_setup(const Conf *conf);

extern Auth *auth_new(struct Worker *worker);
extern void auth_free(Auth *auth);

/*
 * Decides on the routed request by its headers, and fills in req->tenant and
 * req->subject.  0: it may go on.  Else the status of the refusal, or
 * AUTH_WAIT: the key of its token is being fetched.
 */
extern int auth_check(Auth *auth, Request *req, struct MHD_Connection *connection,
					  const char **error);

/* Calls "again" when the fetch has ended. */
extern void auth_park(Auth *auth, Request *req, void (*again)(Request *req));

/* Looks for fetches that ended; called about ten times a second. */
extern void auth_tick(Auth *auth);

/* Asks again for all that wait, since the thread drains. */
extern void auth_drain(Auth *auth);

#endif
