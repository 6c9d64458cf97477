/*
 * admin.h
 *		The rare routes: configure.c, queues.c, dlq.c, replay.c, messages.c, groups.c, seek.c,
 *traces.c.
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

extern void groups_handler(Request *req);			  /* GET /api/v1/consumer-groups */
extern void group_handler(Request *req);			  /* GET .../:group */
extern void lagging_handler(Request *req);			  /* GET .../lagging */
extern void move_subscription_handler(Request *req);  /* POST .../:group/subscription */
extern void delete_group_handler(Request *req);		  /* DELETE .../:group */
extern void delete_group_queue_handler(Request *req); /* DELETE .../:group/queues/:queue */
extern void seek_handler(Request *req);				  /* POST .../:group/queues/:queue/seek */
extern void seek_partition_handler(Request *req); /* POST .../queues/:queue/partitions/:p/seek */
extern void refresh_statistics_handler(Request *req); /* POST /api/v1/stats/refresh */

extern void trace_handler(Request *req);		  /* POST /api/v1/traces */
extern void traces_handler(Request *req);		  /* GET .../:partitionId/:transactionId */
extern void traces_by_name_handler(Request *req); /* GET .../by-name/:name */
extern void trace_names_handler(Request *req);	  /* GET .../names */

extern void purge_dlq_handler(Request *req);	  /* DELETE /api/v1/dlq */
extern void replay_handler(Request *req);		  /* POST /api/v1/dlq/:id/replay */
extern void retry_handler(Request *req);		  /* POST /api/v1/messages/:p/:t/retry */
extern void messages_handler(Request *req);		  /* GET /api/v1/messages */
extern void message_handler(Request *req);		  /* GET /api/v1/messages/:p/:t */
extern void delete_message_handler(Request *req); /* DELETE of the same */

/* The failure of an administrative call, in JSON. */
extern void admin_reply_error(Request *req, const DbError *error);

/* DbDone of a function that returns the whole answer as JSON; NULL is 404. */
extern void admin_on_json(DbCall *call, PGresult *res, const DbError *error);

/* A number of the query; one that does not parse, or is negative, means the default. */
extern int admin_number_arg(const Request *req, const char *name, int fallback, int max);

/* A flag of the query: true, 1, yes or false, 0, no; anything else means the default. */
extern bool admin_bool_arg(const Request *req, const char *name, bool fallback);

/* Answers 400 when "why", the result of a check of a name, is not NULL. */
extern bool admin_refuse_name(Request *req, const char *what, const char *why);

/* A filter of the query; an empty one is no filter. */
extern Span admin_filter_arg(const Request *req, const char *name);

/*
 * A time of the query; *time is left alone when there is none.  With "whole",
 * one that is given to the minute means the end of that minute.  False when it
 * is no time: then the request is answered.
 */
extern bool admin_time_arg(Request *req, const char *name, bool whole, int64_t *time);

#endif
