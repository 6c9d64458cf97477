/*
 * exchange.c
 *		One HTTP request and its answer at a time, over a kept-alive connection.
 */
#include "exchange.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_US (60 * 1000000LL)

int64_t
clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void
exchange_init(Exchange *x, int epoll_fd, int port, void (*done)(void *ctx, ExchangeEnd end),
			  void *ctx)
{
	*x = (Exchange){.epoll_fd = epoll_fd, .port = port, .fd = -1, .done = done, .ctx = ctx};
}

static void
disconnect(Exchange *x)
{
	if (x->fd >= 0)
		close(x->fd);
	x->fd = -1;
}

void
exchange_free(Exchange *x)
{
	disconnect(x);
	buf_free(&x->out);
	buf_free(&x->in);
}

static void
watch(Exchange *x, int op, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = x};

	if (op == EPOLL_CTL_MOD && events == x->events)
		return;
	x->events = events;
	if (epoll_ctl(x->epoll_fd, op, x->fd, &event) < 0)
	{
		perror("epoll_ctl");
		exit(2);
	}
}

static void
finish(Exchange *x, ExchangeEnd end)
{
	x->busy = false;
	if (end != EXCHANGE_ANSWERED)
		disconnect(x);
	x->done(x->ctx, end);
}

static void
lose(Exchange *x)
{
	if (x->busy)
		finish(x, x->sent > 0 ? EXCHANGE_UNKNOWN : EXCHANGE_NOT_SENT);
	else
		disconnect(x);
}

/* An error shows again when the socket is next found ready. */
static void
send_more(Exchange *x)
{
	ssize_t n = send(x->fd, x->out.data + x->sent, x->out.len - x->sent, MSG_NOSIGNAL);

	if (n > 0)
		x->sent += (size_t) n;
	watch(x, EPOLL_CTL_MOD, x->sent < x->out.len ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void
start_connect(Exchange *x)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
								  .sin_port = htons((uint16_t) x->port),
								  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1;

	x->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (x->fd < 0)
	{
		perror("socket");
		exit(2);
	}
	setsockopt(x->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* Whatever this returns, the socket becomes ready, with the error if there is one. */
	(void) !connect(x->fd, (struct sockaddr *) &address, sizeof(address));
	watch(x, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

void
exchange_start(Exchange *x, const char *method, const char *path, const Buf *body)
{
	buf_reset(&x->out);
	buf_reset(&x->in);
	x->sent = 0;
	buf_printf(&x->out, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", method, path);
	if (body)
		buf_printf(&x->out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body->len);
	buf_append_str(&x->out, "\r\n");
	if (body)
		buf_append(&x->out, body->data, body->len);
	x->busy = true;
	x->deadline = clock_us() + ANSWER_TIMEOUT_US;
	if (x->fd < 0)
		start_connect(x);
	else
		send_more(x);
}

/* Value of a header in the head (which is NUL-terminated), or NULL. */
static const char *
header(const char *head, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n"))
	{
		line += 2;
		if (strncasecmp(line, name, len) == 0 && line[len] == ':')
			return line + len + 1;
	}
	return NULL;
}

/* True when the whole answer is there. */
static bool
parse_answer(Exchange *x)
{
	char *end = x->in.len ? memmem(x->in.data, x->in.len, "\r\n\r\n", 4) : NULL;
	const char *value;
	size_t head, length = 0;

	if (end == NULL)
		return false;
	head = (size_t) (end - x->in.data) + 4;
	end[2] = '\0';
	x->status = strncmp(x->in.data, "HTTP/1.1 ", 9) == 0 ? atoi(x->in.data + 9) : 0;
	if (x->status == 0)
	{
		fprintf(stderr, "not an HTTP answer: %.80s\n", x->in.data);
		exit(2);
	}
	if ((value = header(x->in.data, "Content-Length")) != NULL)
		length = strtoul(value, NULL, 10);
	end[2] = '\r';
	x->body = (Span){x->in.data + head, length};
	return x->in.len >= head + length;
}

static bool
must_close(Exchange *x)
{
	const char *value = header(x->in.data, "Connection");

	return value && strncasecmp(value, " close", 6) == 0;
}

void
exchange_ready(Exchange *x)
{
	ssize_t n;

	if (x->busy && x->sent < x->out.len)
		send_more(x);
	if (!buf_reserve(&x->in, 65536))
		abort();
	n = recv(x->fd, x->in.data + x->in.len, 65535, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
	{
		lose(x);
		return;
	}
	x->in.len += (size_t) n;
	x->in.data[x->in.len] = '\0';
	if (x->busy && parse_answer(x))
	{
		if (must_close(x))
			disconnect(x);
		finish(x, EXCHANGE_ANSWERED);
	}
}

void
exchange_check_deadline(Exchange *x, int64_t now)
{
	if (x->busy && now > x->deadline)
		lose(x);
}
