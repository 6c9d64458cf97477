/*
 * reports.h
 *		What there is and what happened: the resources, status and analytics routes.
 *
 * Each of them is one SQL function whose JSON is passed on.  A table in
 * reports.c says which function, and which arguments of the query it takes.
 */
#ifndef QUEEN_REPORTS_H
#define QUEEN_REPORTS_H

#include "http.h"

/* Answers of one thread that "stats=cached" may repeat. */
typedef struct Reports Reports;

extern Reports *reports_new(void);
extern void reports_free(Reports *reports);

/* From now on no thread repeats what it answered before. */
extern void reports_refresh(void);

extern void report_handler(Request *req);		  /* all but the following */
extern void system_metrics_handler(Request *req); /* GET /api/v1/analytics/system-metrics */

#endif
