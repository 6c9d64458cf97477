/*
 * http.c
 *		Requests in, answers out: libmicrohttpd inside the worker's event loop.
 *
 * libmicrohttpd runs in external-epoll mode: its epoll descriptor is one more
 * descriptor of the loop.  Two things it does not do are done beside it.  A
 * suspended connection is not polled, so the socket of a parked request is
 * watched for the client hanging up.  And its time-outs look at inactivity
 * only, so every connection here has a state with a deadline of its own, and
 * http_tick() ends the ones that are over.
 */
#include "http.h"

#include "auth.h"
#include "clock.h"
#include "conf.h"
#include "guard.h"
#include "json.h"
#include "log.h"
#include "metrics.h"
#include "protocol.h"
#include "route.h"
#include "tls.h"
#include "worker.h"

#include <event2/event_struct.h>
#include <malloc.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <utlist.h>

/*
 * Memory of one connection.  From its second request on all of it is
 * resident, and it must hold the largest header block that guard.c lets in.
 */
#define CONNECTION_MEMORY (20 * 1024)

#define BODY_PROGRESS (16 * 1024) /* bytes that renew the deadline of a body */
#define REFUSED_BODY_MAX                                                                           \
	(64 * 1024)				  /* bytes of a body that are read for a refusal to get through */
#define WRITE_BYTES_PER_MS 64 /* slowest reader that is put up with */
#define IDLE_RUNS_MAX 64	  /* runs that led to nothing before the library must wait */
#define TRIM_CONNECTIONS 32	  /* closed connections that make a heap trim worth it */

typedef enum HttpState
{
	HTTP_IDLE,	   /* between two requests */
	HTTP_HEAD,	   /* waiting for a header block */
	HTTP_BODY,	   /* reading a body */
	HTTP_HANDLING, /* with a handler: no deadline here */
	HTTP_WRITING,
	N_HTTP_STATES
} HttpState;

/* A connection is in exactly one state, and in that state's list. */
typedef struct HttpConn
{
	struct HttpConn *prev, *next;
	Http *http;
	struct MHD_Connection *connection;
	int fd;
	HttpState state;
	bool asked; /* a request line was read since the last answer */
	int64_t deadline;
} HttpConn;

typedef struct HttpExchange
{
	Request req;
	struct MHD_Connection *connection;
	HttpConn *conn;
	struct event gone;
	int64_t held;	 /* bytes of its body, its answer, and what http_hold() was told of */
	size_t progress; /* of these, since the deadline was renewed */
	RouteMatch match;
	Buf allow;	 /* methods of the path, when the match is another */
	int refusal; /* status, or AUTH_WAIT; 0: may go on */
	const char *refusal_text;
	bool begun;
	bool suspended;
	bool answered;
	bool cut_off; /* answered past the library: the rest is thrown away */
	bool watched;
} HttpExchange;

struct Http
{
	struct Worker *worker;
	struct MHD_Daemon *daemon;
	struct event *event;
	HttpConn *lists[N_HTTP_STATES];
	int64_t held;  /* bytes of all requests */
	int closed;	   /* since the heap was last trimmed */
	int idle_runs; /* runs of the library since news from the network or a callback */
	int active;
};

/* --- states of a connection ---------------------------------------------- */

static void
conn_enter(HttpConn *conn, HttpState state, int64_t timeout_ms)
{
	DL_DELETE(conn->http->lists[conn->state], conn);
	conn->state = state;
	conn->deadline = clock_ms() + timeout_ms;
	DL_APPEND(conn->http->lists[state], conn);
}

static void
on_connection(void *arg, struct MHD_Connection *connection, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	Http *http = arg;
	HttpConn *conn;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED)
	{
		conn = *socket_context;
		if (conn == NULL)
			return;
		DL_DELETE(http->lists[conn->state], conn);
		http->closed++;
		free(conn);
		*socket_context = NULL;
		/* At its limit, the library takes others only at the run after this one. */
		http->idle_runs = 0;
		http->worker->http_pending = true;
		return;
	}
	conn = calloc(1, sizeof(*conn));
	*socket_context = conn;
	if (conn == NULL)
		return;
	conn->http = http;
	conn->connection = connection;
	conn->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	conn->state = HTTP_HEAD;
	conn->deadline = clock_ms() + http->worker->conf->header_timeout_ms;
	DL_APPEND(http->lists[HTTP_HEAD], conn);
}

/* The last bytes of a connection, past the library.  Its other direction stays open. */
static bool
send_last(HttpConn *conn, const char *text, ssize_t len)
{
	ssize_t sent;

	if (tls_enabled())
	{
		gnutls_session_t session =
			MHD_get_connection_info(conn->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION)
				->tls_session;

		sent = gnutls_record_send(session, text, (size_t) len);
		gnutls_bye(session, GNUTLS_SHUT_WR);
	}
	else
		sent = send(conn->fd, text, (size_t) len, MSG_NOSIGNAL | MSG_DONTWAIT);
	shutdown(conn->fd, SHUT_WR);
	return sent == len;
}

/* An answer to a request that the library still waits to read. */
static void
conn_abort(HttpConn *conn, int status, const char *error)
{
	char text[256];
	int body_len = (int) strlen(error) + 12;
	ssize_t len =
		snprintf(text, sizeof(text),
				 "HTTP/1.1 %d %s\r\nConnection: close\r\n%sContent-Type: application/json\r\n"
				 "Content-Length: %d\r\n\r\n{\"error\":\"%s\"}",
				 status, MHD_get_reason_phrase_for((unsigned int) status),
				 status == 401	 ? "WWW-Authenticate: Bearer\r\n"
				 : status == 503 ? "Retry-After: 1\r\n"
								 : "",
				 body_len, error);

	metrics_count_status(&conn->http->worker->metrics, status);
	if (!send_last(conn, text, len))
		log_event(LOG_LEVEL_DEBUG, "could not tell a client why it is cut off", NULL);
}

static void
conn_expire(HttpConn *conn)
{
	if ((conn->state == HTTP_HEAD && conn->asked) || conn->state == HTTP_BODY)
		conn_abort(conn, 408, "request took too long");
	shutdown(conn->fd, SHUT_RDWR); /* the library sees the end and cleans up */
}

static void
list_expire(Http *http, HttpState state, int64_t now)
{
	HttpConn *conn, *next;

	DL_FOREACH_SAFE (http->lists[state], conn, next)
	{
		if (conn->deadline < now)
		{
			conn_expire(conn);
			conn_enter(conn, HTTP_HANDLING, 0); /* once is enough */
		}
		else if (state != HTTP_WRITING)
			break; /* one time limit per state: the list is in order */
	}
}

void
http_tick(Http *http)
{
	int64_t now = clock_ms();

	list_expire(http, HTTP_IDLE, now);
	list_expire(http, HTTP_HEAD, now);
	list_expire(http, HTTP_BODY, now);
	list_expire(http, HTTP_WRITING, now);
	if (http->idle_runs > IDLE_RUNS_MAX)
		http->worker->http_pending = true;
	if (http->closed >= TRIM_CONNECTIONS)
	{
		/* Connection memory is many small pieces, which malloc would keep. */
		malloc_trim(0);
		http->closed = 0;
	}
}

/* --- memory --------------------------------------------------------------- */

void
http_hold(Request *req, size_t bytes)
{
	req->exchange->held += (int64_t) bytes;
	req->worker->http->held += (int64_t) bytes;
}

bool
http_full(const Http *http)
{
	return http->held >= http->worker->conf->max_buffered_bytes;
}

/* --- answers ------------------------------------------------------------- */

static void
unwatch(HttpExchange *x)
{
	if (x->watched)
		event_del(&x->gone);
	x->watched = false;
}

/* One more header if "name" is set, or another type than JSON.  What answers while the server
 * drains ends its connection. */
static void
exchange_reply(HttpExchange *x, int status, Buf *body, const char *name, const char *value)
{
	struct Worker *worker = x->req.worker;
	struct MHD_Response *response;
	char *data;
	size_t len;

	if (body && body->failed)
	{
		buf_free(body);
		buf_append_str(body, "{\"error\":\"out of memory\"}");
		status = 503;
		name = NULL;
	}
	data = body ? body->data : NULL;
	len = body ? body->len : 0;
	unwatch(x);
	response = MHD_create_response_from_buffer(
		len, data, data ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	if (body)
		memset(body, 0, sizeof(*body));
	http_hold(&x->req, len);
	if (len && !(name && strcmp(name, "Content-Type") == 0))
		MHD_add_response_header(response, "Content-Type", "application/json");
	if (status == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	if (status == 503)
		MHD_add_response_header(response, "Retry-After", "1");
	if (name)
		MHD_add_response_header(response, name, value);
	if (worker->draining)
		MHD_add_response_header(response, "Connection", "close");

	metrics_count_status(&worker->metrics, status);
	conn_enter(x->conn, HTTP_WRITING,
			   worker->conf->body_timeout_ms + (int64_t) len / WRITE_BYTES_PER_MS);
	x->answered = true;
	MHD_queue_response(x->connection, (unsigned int) status, response);
	MHD_destroy_response(response);
	if (x->suspended)
	{
		x->suspended = false;
		MHD_resume_connection(x->connection);
		worker->http_pending = true;
	}
}

void
http_reply(Request *req, int status, Buf *body)
{
	exchange_reply(req->exchange, status, body, NULL, NULL);
}

void
http_reply_text(Request *req, int status, const char *type, Buf *body)
{
	exchange_reply(req->exchange, status, body, "Content-Type", type);
}

static Buf
error_body(const char *text, const char *member, const char *value)
{
	Buf body = {0};

	buf_append_str(&body, "{\"error\":");
	json_write_string(&body, text, strlen(text));
	if (member)
	{
		buf_printf(&body, ",\"%s\":", member);
		json_write_string(&body, value, strlen(value));
	}
	buf_append_char(&body, '}');
	return body;
}

void
http_reply_error_with(Request *req, int status, const char *text, const char *member,
					  const char *value)
{
	Buf body = error_body(text, member, value);

	exchange_reply(req->exchange, status, &body, NULL, NULL);
}

void
http_reply_error(Request *req, int status, const char *text)
{
	http_reply_error_with(req, status, text, NULL, NULL);
}

/* The connection cannot be trusted any more: answer and close. */
static enum MHD_Result
refuse_and_close(HttpExchange *x, int status, const char *text)
{
	Buf body = error_body(text, NULL, NULL);

	exchange_reply(x, status, &body, x->req.worker->draining ? NULL : "Connection", "close");
	return MHD_YES;
}

/*
 * Answers before the body is read, and lets the rest of it come, for a while:
 * a close that meets unread bytes resets the connection, and a client that is
 * still sending may never see the answer.
 */
static void
cut_off(HttpExchange *x, int status, const char *text)
{
	x->cut_off = true;
	x->conn->http->held -= x->held;
	x->held = 0;
	buf_free(&x->req.body);
	conn_abort(x->conn, status, text);
	conn_enter(x->conn, HTTP_WRITING, x->req.worker->conf->body_timeout_ms);
}

/* Refuses a large body.  It is on its way, unless the client waits to be asked for it. */
static enum MHD_Result
refuse_body(HttpExchange *x, int status, const char *text)
{
	if (MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Expect"))
		return refuse_and_close(x, status, text);
	cut_off(x, status, text);
	return MHD_YES;
}

/* --- requests ------------------------------------------------------------ */

/* The request line was read.  What is returned becomes the request's context. */
static void *
on_request_line(void *arg, const char *target, struct MHD_Connection *connection)
{
	Http *http = arg;
	HttpExchange *x = calloc(1, sizeof(*x));
	HttpConn *conn =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;

	if (x == NULL || conn == NULL)
	{
		free(x);
		return NULL;
	}
	x->req.worker = http->worker;
	x->req.exchange = x;
	uuid_parse(DEFAULT_TENANT, UUID_TEXT_LEN, &x->req.tenant);
	x->connection = connection;
	x->conn = conn;
	/* A copy: the library decodes its own in place. */
	buf_append(&x->req.body, target, strlen(target) + 1);
	conn->asked = true;
	if (conn->state == HTTP_IDLE)
		conn_enter(conn, HTTP_HEAD, http->worker->conf->header_timeout_ms);
	http->active++;
	return x;
}

/* A refusal waits for a small body: closing on one could make the client lose the answer. */
static enum MHD_Result
authorize(HttpExchange *x, const char *method, const GuardVerdict *verdict)
{
	x->match = route_find(&x->req, method, &x->allow);
	if (x->match == ROUTE_FOUND)
		x->refusal = auth_check(x->req.worker->auth, &x->req, x->connection, &x->refusal_text);
	if (x->refusal > 0 && (verdict->chunked || verdict->content_length > REFUSED_BODY_MAX))
		return refuse_body(x, x->refusal, x->refusal_text);
	return MHD_YES;
}

/* The header block is complete: decide whether to read the body. */
static enum MHD_Result
begin_request(HttpExchange *x, const char *method, const char *version)
{
	const struct Conf *conf = x->req.worker->conf;
	GuardVerdict verdict = guard_check(x->connection, version);
	const char *error;

	x->begun = true;
	conn_enter(x->conn, HTTP_BODY, conf->body_timeout_ms);
	if (verdict.status)
		return refuse_and_close(x, verdict.status, verdict.error);
	if (x->req.body.failed)
		return refuse_and_close(x, 503, "out of memory");
	error = target_parse(&x->req.target, x->req.body.data);
	buf_reset(&x->req.body);
	if (error)
		return refuse_and_close(x, x->req.target.text ? 400 : 503, error);
	if (verdict.content_length > conf->max_body_bytes)
		return refuse_body(x, 413, "request body too large");
	return authorize(x, method, &verdict);
}

/* Part of the body. */
static void
take_body(Http *http, HttpExchange *x, const char *data, size_t len)
{
	const struct Conf *conf = http->worker->conf;

	if (http->held + (int64_t) len > conf->max_buffered_bytes)
	{
		cut_off(x, 503, "too much is being sent at once");
		return;
	}
	if (x->req.body.len + len > (size_t) conf->max_body_bytes)
	{
		cut_off(x, 413, "request body too large");
		return;
	}
	buf_append(&x->req.body, data, len);
	http_hold(&x->req, len);
	x->progress += len;
	if (x->progress >= BODY_PROGRESS)
	{
		x->progress = 0;
		conn_enter(x->conn, HTTP_BODY, conf->body_timeout_ms);
	}
}

static void
reply_no_route(HttpExchange *x)
{
	Buf body;

	if (x->match != ROUTE_WRONG_METHOD)
	{
		http_reply_error_with(&x->req, 404, "Not Found", "code", "no_such_route");
		return;
	}
	body = error_body("Method Not Allowed", "code", "method_not_allowed");
	buf_append_char(&x->allow, '\0');
	exchange_reply(x, 405, &body, "Allow", x->allow.data);
}

static void admit(HttpExchange *x);

static void
on_keys_fetched(Request *req)
{
	admit(req->exchange);
}

/* Hands the request to its handler, or refuses it, or waits for the keys that decide. */
static void
admit(HttpExchange *x)
{
	Request *req = &x->req;

	if (x->refusal == AUTH_WAIT)
		x->refusal = auth_check(req->worker->auth, req, x->connection, &x->refusal_text);
	if (x->refusal == 0)
		req->route->handler(req);
	else if (x->refusal != AUTH_WAIT)
		http_reply_error(req, x->refusal, x->refusal_text);
	else if (req->worker->draining)
		http_reply_error(req, 503, "shutting down");
	else
		auth_park(req->worker->auth, req, on_keys_fetched);
}

/* The request is complete. */
static void
handle_request(HttpExchange *x)
{
	if (x->match != ROUTE_FOUND)
		reply_no_route(x);
	else if (x->req.body.failed)
		http_reply_error(&x->req, 503, "out of memory");
	else if (x->req.worker->closing)
		http_reply_error(&x->req, 503, "shutting down");
	else
		admit(x);
}

static enum MHD_Result
on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
		   const char *version, const char *upload_data, size_t *upload_data_size, void **context)
{
	Http *http = arg;
	HttpExchange *x = *context;

	(void) url;
	http->idle_runs = 0;
	if (x == NULL)
		return MHD_NO;
	if (!x->begun)
		return begin_request(x, method, version);
	if (*upload_data_size > 0)
	{
		if (!x->cut_off)
			take_body(http, x, upload_data, *upload_data_size);
		*upload_data_size = 0;
		return MHD_YES;
	}
	if (x->cut_off)
		return MHD_NO; /* ends the connection */
	if (x->answered)
		return MHD_YES;
	conn_enter(x->conn, HTTP_HANDLING, 0);
	handle_request(x);
	if (!x->answered)
	{
		x->suspended = true;
		MHD_suspend_connection(connection);
	}
	return MHD_YES;
}

/* The library is done with the request: answered, or the connection is gone. */
static void
on_completed(void *arg, struct MHD_Connection *connection, void **context,
			 enum MHD_RequestTerminationCode code)
{
	Http *http = arg;
	HttpExchange *x = *context;

	(void) connection;
	if (x == NULL)
		return;
	unwatch(x);
	if (x->req.on_done)
		x->req.on_done(&x->req, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
	conn_enter(x->conn, HTTP_IDLE, http->worker->conf->idle_timeout_ms);
	x->conn->asked = false;
	http->held -= x->held;
	target_free(&x->req.target);
	buf_free(&x->req.body);
	buf_free(&x->allow);
	free(x->req.subject);
	free(x);
	http->active--;
	*context = NULL;
}

/* The loop reports a reset as "readable", like the next request of a client that pipelines. */
static bool
peer_gone(int fd)
{
	struct pollfd state = {.fd = fd, .events = POLLRDHUP};

	return poll(&state, 1, 0) > 0;
}

static void
on_client_gone(evutil_socket_t fd, short what, void *arg)
{
	HttpExchange *x = arg;

	(void) what;
	if (!peer_gone(fd))
		return;
	unwatch(x);
	if (x->req.on_gone)
		x->req.on_gone(&x->req);
}

void
http_watch(Request *req)
{
	HttpExchange *x = req->exchange;

	/* Edge-triggered: a pipelined request stays unread, and would be reported for ever. */
	event_assign(&x->gone, req->worker->base, x->conn->fd, EV_CLOSED | EV_READ | EV_ET | EV_PERSIST,
				 on_client_gone, x);
	x->watched = event_add(&x->gone, NULL) == 0;
}

/* --- the daemon ---------------------------------------------------------- */

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct Worker *worker = arg;

	(void) fd;
	(void) what;
	worker->http_pending = true;
	worker->http->idle_runs = 0;
}

static void
on_library_log(void *arg, const char *format, va_list args)
{
	char text[512];

	(void) arg;
	vsnprintf(text, sizeof(text), format, args);
	text[strcspn(text, "\n")] = '\0';
	log_event(LOG_LEVEL_DEBUG, "http library", "text", text, NULL);
}

Http *
http_start(struct Worker *worker, int listen_fd)
{
	Http *http = calloc(1, sizeof(*http));
	unsigned int limit = (unsigned int) (worker->conf->max_connections / worker->conf->threads + 1);

	struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, TLS_PRIORITIES},
								   {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *) tls_certificate},
								   {MHD_OPTION_END, 0, NULL}};

	http->worker = worker;
	http->daemon = MHD_start_daemon(
		(tls_enabled() ? MHD_USE_TLS : 0) | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
			MHD_USE_ERROR_LOG,
		0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
		MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t) CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT, limit,
		MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, http,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
		on_connection, http, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
		tls_enabled() ? tls : tls + 2, MHD_OPTION_END);
	if (http->daemon == NULL)
	{
		free(http);
		return NULL;
	}
	http->event = event_new(worker->base,
							MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
							EV_READ | EV_PERSIST, on_readable, worker);
	event_add(http->event, NULL);
	return http;
}

/*
 * The library asks to be run again at once also for a connection whose input
 * fills its memory and makes no sense yet (a chunk extension without end).
 * That could go on until the connection's deadline, so after some runs that
 * led to nothing it is run once per tick, and when the network has news.
 */
void
http_run(Http *http)
{
	MHD_UNSIGNED_LONG_LONG timeout;

	http->worker->http_pending = false;
	http->idle_runs++;
	MHD_run(http->daemon);
	if (http->idle_runs <= IDLE_RUNS_MAX && MHD_get_timeout(http->daemon, &timeout) == MHD_YES &&
		timeout == 0)
		http->worker->http_pending = true;
}

void
http_quiesce(Http *http)
{
	int fd = MHD_quiesce_daemon(http->daemon);

	if (fd >= 0)
		evutil_closesocket(fd);
}

void
http_stop(Http *http)
{
	event_free(http->event);
	MHD_stop_daemon(http->daemon);
	free(http);
}

int
http_active(const Http *http)
{
	return http->active;
}
