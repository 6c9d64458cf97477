/*
 * route.h
 *		Which handler answers which method and path.
 */
#ifndef QUEEN_ROUTE_H
#define QUEEN_ROUTE_H

#include "http.h"

/* Who may call a route, when requests carry a role. */
typedef enum RouteLevel
{
	LEVEL_PUBLIC,
	LEVEL_READ_ONLY,
	LEVEL_WRITE_ONLY,
	LEVEL_READ_WRITE,
	LEVEL_ADMIN
} RouteLevel;

typedef struct Route
{
	const char *method;
	const char *path; /* a segment ":name" matches any one segment */
	RouteLevel level;
	void (*handler)(Request *req);
} Route;

typedef enum RouteMatch
{
	ROUTE_FOUND,
	ROUTE_WRONG_METHOD, /* "allow" lists what the path takes */
	ROUTE_NONE
} RouteMatch;

/* Finds the route for req->target and fills req->route and req->params. */
extern RouteMatch route_find(Request *req, const char *method, Buf *allow);

#endif
