/*
 * maintenance.h
 *		Maintenance modes, and the routes of administration around them.
 *
 * Two flags in the database, so that all front ends see them: under push
 * maintenance pushes go to the spool, under pop maintenance pops get nothing.
 */
#ifndef QUEEN_MAINTENANCE_H
#define QUEEN_MAINTENANCE_H

#include "http.h"

/* As last heard of the database: at once where they are changed, and by notification elsewhere. */
extern bool maintenance_push(void);
extern bool maintenance_pop(void);

/* Whether the database has been heard since the start. */
extern bool maintenance_known(void);

/* Asks the database now and then, or at once; called in one thread. */
extern void maintenance_tick(struct Worker *worker);
extern void maintenance_refresh(void);

extern void maintenance_handler(Request *req);	  /* GET and POST .../system/maintenance */
extern void shared_state_handler(Request *req);	  /* GET /api/v1/system/shared-state */
extern void buffers_handler(Request *req);		  /* GET /api/v1/status/buffers */
extern void notify_handler(Request *req);		  /* POST /internal/api/notify */
extern void internal_stats_handler(Request *req); /* GET /internal/api/.../stats */

#endif
