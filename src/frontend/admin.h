/*
 * admin.h
 *		The rare routes: configure.c, queues.c, dlq.c.
 */
#ifndef QUEEN_ADMIN_H
#define QUEEN_ADMIN_H

#include "db.h"
#include "http.h"

extern void configure_handler(Request *req);	/* POST /api/v1/configure */
extern void delete_queue_handler(Request *req); /* DELETE /api/v1/resources/queues/:queue */
extern void dlq_handler(Request *req);			/* GET /api/v1/dlq */
extern void me_handler(Request *req);			/* GET /auth/me */
extern void login_handler(Request *req);		/* GET /auth/login */
extern void logout_handler(Request *req);		/* POST /auth/logout */

/* The failure of an administrative call, in JSON. */
extern void admin_reply_error(Request *req, const DbError *error);

/* DbDone of a function that returns the whole answer as JSON; NULL is 404. */
extern void admin_on_json(DbCall *call, PGresult *res, const DbError *error);

/* A number of the query; one that does not parse, or is negative, means the default. */
extern int admin_number_arg(const Request *req, const char *name, int fallback, int max);

/* A filter of the query; an empty one is no filter. */
extern Span admin_filter_arg(const Request *req, const char *name);

#endif
