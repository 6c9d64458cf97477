/*
 * status.h
 *		GET /health, /status, /metrics
 */
#ifndef QUEEN_STATUS_H
#define QUEEN_STATUS_H

#include "http.h"

#define ENGINE_NAME "segments-postgresql"

extern void health_handler(Request *req);
extern void status_handler(Request *req);
extern void metrics_handler(Request *req);

#endif
