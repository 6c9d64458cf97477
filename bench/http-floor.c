/*
 * http-floor.c
 *		The least that an HTTP server on this library costs.
 *
 * It reads nothing of a request but its framing and answers a constant, the
 * answer to a push of one message.  Library, its mode and the event loop around
 * it are those of the front end, and so is the number of threads.
 *
 * usage: http-floor PORT
 */
#include <event2/event.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTION_MEMORY 32768
#define BACKLOG 4096

static const char answer[] =
	"[{\"index\":0,\"message_id\":\"0193a0de-0000-7000-8000-000000000000\","
	"\"transaction_id\":\"0193a0de-0000-7000-8000-000000000000\","
	"\"queueName\":\"bench\",\"status\":\"queued\"}]";

typedef struct Floor
{
	struct MHD_Daemon *daemon;
	struct event_base *base;
	bool pending; /* the library wants to be run again */
} Floor;

static enum MHD_Result
on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
		   const char *version, const char *data, size_t *size, void **context)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	(void) arg;
	(void) url;
	(void) method;
	(void) version;
	(void) data;
	if (*context == NULL || *size > 0)
	{
		*context = connection; /* any mark: the head has been seen */
		*size = 0;
		return MHD_YES;
	}
	response =
		MHD_create_response_from_buffer(strlen(answer), (void *) answer, MHD_RESPMEM_PERSISTENT);
	MHD_add_response_header(response, "Content-Type", "application/json");
	result = MHD_queue_response(connection, MHD_HTTP_CREATED, response);
	MHD_destroy_response(response);
	return result;
}

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	Floor *floor = arg;

	(void) fd;
	(void) what;
	floor->pending = true;
}

static void *
serve(void *arg)
{
	int listen_fd = *(int *) arg;
	Floor floor = {.base = event_base_new()};
	struct event *event;

	floor.daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
		NULL, MHD_OPTION_LISTEN_SOCKET, dup(listen_fd), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t) CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_END);
	if (floor.daemon == NULL)
		exit(1);
	event =
		event_new(floor.base, MHD_get_daemon_info(floor.daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
				  EV_READ | EV_PERSIST, on_readable, &floor);
	event_add(event, NULL);
	while (true)
	{
		MHD_UNSIGNED_LONG_LONG timeout;

		event_base_loop(floor.base, EVLOOP_ONCE | (floor.pending ? EVLOOP_NONBLOCK : 0));
		if (floor.pending)
			MHD_run(floor.daemon);
		floor.pending = MHD_get_timeout(floor.daemon, &timeout) == MHD_YES && timeout == 0;
	}
	return NULL;
}

static int
open_listener(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
								  .sin_port = htons((uint16_t) port),
								  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0)
	{
		perror("http-floor");
		exit(1);
	}
	return fd;
}

int
main(int argc, char **argv)
{
	long more = sysconf(_SC_NPROCESSORS_ONLN) / 2 - 1;
	pthread_t thread;
	int fd;

	if (argc != 2)
	{
		fprintf(stderr, "usage: http-floor PORT\n");
		return 2;
	}
	fd = open_listener(atoi(argv[1]));
	for (long i = 0; i < more; i++)
		pthread_create(&thread, NULL, serve, &fd);
	serve(&fd);
	return 0;
}
