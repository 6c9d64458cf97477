/*
 * streams.h
 *		Server side of the clients' stream processing.
 *
 * Clients compute; the server keeps records of their queries and their state,
 * and commits cycles: state, results and the acknowledgement of the source in
 * one transaction.
 */
#ifndef QUEEN_STREAMS_H
#define QUEEN_STREAMS_H

#include "http.h"

extern void stream_query_handler(Request *req); /* POST /streams/v1/queries */
extern void stream_state_handler(Request *req); /* POST /streams/v1/state/get */
extern void stream_cycle_handler(Request *req); /* POST /streams/v1/cycle */

/* {"success": false, "error": text} */
extern void stream_fail(Request *req, int status, const char *error);

#endif
