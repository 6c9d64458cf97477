/*
 * http.h
 *		Requests in, answers out: libmicrohttpd inside the worker's event loop.
 *
 * A request is handled when its body is complete.  A handler either answers
 * at once or keeps the request and answers later, from the same thread; in
 * between the connection is suspended and costs no work.  A request lives
 * until libmicrohttpd is done with it, which is after the answer.
 */
#ifndef QUEEN_HTTP_H
#define QUEEN_HTTP_H

#include "buf.h"
#include "target.h"
#include "uuid.h"

#include <event2/event.h>

struct Worker;
struct Route;
typedef struct Http Http;
typedef struct Request Request;

struct Request
{
	struct Worker *worker;
	const struct Route *route;
	Uuid tenant;
	Target target;
	Span params[3]; /* the ":name" segments of the route, in order */
	char *subject;	/* of the token; NULL: none */
	Buf body;

	/*
	 * For handlers that answer later.  on_gone: the client hung up before the
	 * answer (only after http_watch()).  on_done: the answer was handed to the
	 * network, or could not be; the last call for this request.
	 */
	void *ctx;
	void (*on_gone)(Request *req);
	void (*on_done)(Request *req, bool delivered);

	struct HttpExchange *exchange; /* private to http.c */
};

/* Starts serving on a listening socket, which the daemon then owns. */
extern Http *http_start(struct Worker *worker, int listen_fd);

/* No new connections; those that exist go on. */
extern void http_quiesce(Http *http);
extern void http_stop(Http *http);

/* Handles what arrived; called once per turn of the loop. */
extern void http_run(Http *http);

/* Ends connections that are too slow; called about ten times a second. */
extern void http_tick(Http *http);

/*
 * Counts memory that a request holds beside its body, until it is answered.
 * Bodies and answers are counted by themselves.
 */
extern void http_hold(Request *req, size_t bytes);

/* Whether all of it is as much as it may be: nothing that needs a lot is begun then. */
extern bool http_full(const Http *http);

/* Requests that are being read, handled or answered. */
extern int http_active(const Http *http);

/* Watch for the client hanging up while the answer is pending. */
extern void http_watch(Request *req);

/* Answers; takes the memory of "body".  "body" NULL: no body (204). */
extern void http_reply(Request *req, int status, Buf *body);

/* The same with a body that is not JSON, but of the type given. */
extern void http_reply_text(Request *req, int status, const char *type, Buf *body);

/* {"error": text} with the given status; 503 carries Retry-After. */
extern void http_reply_error(Request *req, int status, const char *text);

/* As above with one more member, such as "code" or "invalid". */
extern void http_reply_error_with(Request *req, int status, const char *text, const char *member,
								  const char *value);

#endif
