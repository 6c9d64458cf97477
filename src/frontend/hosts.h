/*
 * hosts.h
 *		The hosts of a connection string, to be tried one by one.
 *
 * libpq goes through a list of hosts by itself, but a connection that is made
 * without blocking knows no time limit there: a host that swallows packets
 * would never be passed over.  So each attempt to connect gets one host, and
 * a time limit of its own.
 */
#ifndef QUEEN_HOSTS_H
#define QUEEN_HOSTS_H

#include <stdint.h>

/* What is NULL is left to the connection string. */
typedef struct Host
{
	char *name;
	char *address;
	char *port;
} Host;

typedef struct Hosts
{
	Host *list;
	int n;				/* at least 1 */
	int64_t timeout_ms; /* for each of them */
} Hosts;

/*
 * Reads them from a connection string that libpq can read, and from where
 * libpq looks besides.  A list that is not one plain name, address or port per
 * host is left to libpq as a whole, as is the list of a service that the
 * string names.
 */
extern void hosts_read(Hosts *hosts, const char *dsn);
extern void hosts_free(Hosts *hosts);

#endif
