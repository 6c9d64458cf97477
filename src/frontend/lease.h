/*
 * lease.h
 *		POST /api/v1/lease/:leaseId/extend
 */
#ifndef QUEEN_LEASE_H
#define QUEEN_LEASE_H

#include "http.h"

extern void lease_extend_handler(Request *req);

#endif
