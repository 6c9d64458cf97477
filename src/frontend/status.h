/*
 * status.h
 *		GET /health, /status, /metrics, /metrics/prometheus
 */
#ifndef QUEEN_STATUS_H
#define QUEEN_STATUS_H

#include "http.h"

#define ENGINE_NAME "segments-postgresql"

extern void health_handler(Request *req);
extern void status_handler(Request *req);
extern void metrics_handler(Request *req);
extern void prometheus_handler(Request *req); /* prometheus.c */

#endif
