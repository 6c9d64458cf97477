/*
 * main.c
 *		queen-frontend: HTTP in front, PostgreSQL behind, no state of its own.
 */
#include "auth.h"
#include "conf.h"
#include "keyring.h"
#include "log.h"
#include "spool.h"
#include "tls.h"
#include "worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096
#define OTHER_DESCRIPTORS 64  /* logs, libraries, and some to spare */
#define WORKER_DESCRIPTORS 10 /* event loop, HTTP daemon, the connections of which there is one */

/* Accepted connections inherit this: of a client that vanished without a word they hear in 90 s. */
static void
set_keep_alive(int fd)
{
	int one = 1, idle_s = 60, interval_s = 10, probes = 3;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/*
 * One listening socket, shared by all threads.  It does not set SO_REUSEPORT,
 * so a second front end on the port fails instead of taking half the clients.
 */
static int
open_listener(const Conf *conf)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	struct addrinfo *addr;
	char port[8];
	int one = 1;
	int fd;
	int failed;

	snprintf(port, sizeof(port), "%d", (int) conf->port);
	failed = getaddrinfo(conf->bind_addr, port, &hints, &addr);
	if (failed)
	{
		log_event(LOG_LEVEL_ERROR, "not an IP address to bind to", "bind", conf->bind_addr, "error",
				  gai_strerror(failed), NULL);
		return -1;
	}
	fd = socket(addr->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	set_keep_alive(fd);
	if (fd < 0 || bind(fd, addr->ai_addr, addr->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
	{
		log_event(LOG_LEVEL_ERROR, "could not listen", "bind", conf->bind_addr, "port", port,
				  "error", strerror(errno), NULL);
		fd = -1;
	}
	freeaddrinfo(addr);
	return fd;
}

static void
log_listening(const Conf *conf, int fd)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";

	getsockname(fd, (struct sockaddr *) &addr, &len);
	getnameinfo((struct sockaddr *) &addr, len, host, sizeof(host), port, sizeof(port),
				NI_NUMERICHOST | NI_NUMERICSERV);
	if (strncmp(host, "127.", 4) != 0 && strcmp(host, "::1") != 0 && !conf->jwt_enabled)
		log_event(LOG_LEVEL_WARN, "listening beyond loopback without authentication", "address",
				  host, NULL);
	log_event(LOG_LEVEL_INFO, "listening", "address", host, "port", port, "subscription_mode",
			  conf->subscription_mode, NULL);
}

/* Each client connection is a descriptor. */
static void
raise_descriptor_limit(Conf *conf)
{
	struct rlimit limit;
	int64_t per_worker = conf->push_connections + conf->read_connections + conf->wait_connections +
						 WORKER_DESCRIPTORS;
	rlim_t others = (rlim_t) (conf->threads * per_worker + OTHER_DESCRIPTORS);
	rlim_t wanted = (rlim_t) conf->max_connections + others;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < wanted)
	{
		limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur < wanted)
	{
		conf->max_connections =
			limit.rlim_cur > others + 1 ? (int64_t) (limit.rlim_cur - others) : 1;
		log_event(LOG_LEVEL_WARN, "the limit on open files is below max-connections", NULL);
	}
}

/* The pauses between attempts to connect differ from those of other front ends. */
static void
seed_jitter(void)
{
	unsigned seed = (unsigned) getpid();

	(void) !getrandom(&seed, sizeof(seed), GRND_NONBLOCK);
	srandom(seed);
}

/* Signals are taken by this thread alone; the workers inherit the mask. */
static void
block_signals(sigset_t *set)
{
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, set, NULL);
}

/* Waits for the order to stop, then for the workers to drain; a second order ends it now. */
static void
wait_for_end(const sigset_t *set)
{
	struct timespec poll = {0, 20 * 1000 * 1000};
	int sig;

	while ((sig = sigwaitinfo(set, NULL)) < 0 || sig == SIGHUP)
	{
		if (sig == SIGHUP)
		{
			tls_reload();
			keyring_reload();
		}
	}
	log_event(LOG_LEVEL_INFO, "shutting down", NULL);
	workers_stop();
	while (workers_running() > 0)
	{
		sig = sigtimedwait(set, NULL, &poll);
		if (sig == SIGTERM || sig == SIGINT)
		{
			log_event(LOG_LEVEL_WARN, "shutting down at once", NULL);
			_exit(1);
		}
	}
	workers_join();
}

int
main(int argc, char **argv)
{
	static Conf conf; /* what it points to lives as long as the process */
	sigset_t signals;
	int fd;

	if (!conf_load(&conf, argc, argv) || !auth_setup(&conf) || !tls_setup(&conf))
		return 2;
	if (conf.check_only)
	{
		printf("queen-frontend: settings are valid\n");
		return 0;
	}
	if (conf.threads == 0)
		conf.threads = sysconf(_SC_NPROCESSORS_ONLN) > 2 ? sysconf(_SC_NPROCESSORS_ONLN) / 2 : 1;
	seed_jitter();
	block_signals(&signals);
	raise_descriptor_limit(&conf);
	fd = open_listener(&conf);
	if (fd < 0)
		return 1;
	log_listening(&conf, fd);
	spool_open(&conf);
	if (!keyring_start() || !workers_start(&conf, fd))
	{
		log_event(LOG_LEVEL_ERROR, "could not start", NULL);
		return 1;
	}
	wait_for_end(&signals);
	spool_close();
	keyring_stop();
	tls_free();
	log_event(LOG_LEVEL_INFO, "stopped", NULL);
	return 0;
}
