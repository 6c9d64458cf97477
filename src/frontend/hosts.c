/*
 * hosts.c
 *		The hosts of a connection string, to be tried one by one.
 */
#include "hosts.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 10000 /* of all hosts, unless connect_timeout is set */
#define TIMEOUT_MIN_S 2	 /* what libpq makes of a shorter one */
#define TIMEOUT_MAX_S 3600

/* What the connection string says, then what libpq takes without it. */
typedef struct Sources
{
	PQconninfoOption *dsn;
	PQconninfoOption *defaults;
} Sources;

static const char *
find(const PQconninfoOption *options, const char *keyword)
{
	for (; options && options->keyword; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options->val && *options->val ? options->val : NULL;
	return NULL;
}

static const char *
look_up(const Sources *sources, const char *keyword)
{
	const char *value = find(sources->dsn, keyword);

	return value ? value : find(sources->defaults, keyword);
}

static int
list_length(const char *list)
{
	int n = list != NULL;

	while (list && (list = strchr(list, ',')) != NULL)
	{
		list++;
		n++;
	}
	return n;
}

/* Whether it has one entry for each host, and none of them is empty. */
static bool
list_fits(const char *list, int n)
{
	return list == NULL || (list_length(list) == n && *list != ',' &&
							list[strlen(list) - 1] != ',' && strstr(list, ",,") == NULL);
}

static char *
list_entry(const char *list, int i)
{
	char *entry;

	if (list == NULL)
		return NULL;
	for (; i > 0; i--)
		list = strchr(list, ',') + 1;
	entry = strndup(list, strcspn(list, ","));
	if (entry == NULL)
		abort();
	return entry;
}

static void
read_list(Hosts *hosts, const Sources *sources)
{
	const char *names = look_up(sources, "host");
	const char *addresses = look_up(sources, "hostaddr");
	const char *ports = look_up(sources, "port");
	int n = list_length(addresses ? addresses : names);

	if (find(sources->dsn, "service") || n < 2 || !list_fits(names, n) ||
		!list_fits(addresses, n) || (list_length(ports) > 1 && !list_fits(ports, n)))
		n = 1;
	hosts->list = calloc((size_t) n, sizeof(*hosts->list));
	if (hosts->list == NULL)
		abort();
	hosts->n = n;
	for (int i = 0; n > 1 && i < n; i++)
		hosts->list[i] = (Host){list_entry(names, i), list_entry(addresses, i),
								list_length(ports) > 1 ? list_entry(ports, i) : NULL};
}

static void
read_timeout(Hosts *hosts, const Sources *sources)
{
	const char *text = look_up(sources, "connect_timeout");
	long seconds = text ? strtol(text, NULL, 10) : 0;

	if (seconds <= 0)
	{
		hosts->timeout_ms = TIMEOUT_MS / hosts->n;
		return;
	}
	seconds = seconds < TIMEOUT_MIN_S ? TIMEOUT_MIN_S : seconds;
	hosts->timeout_ms = (seconds < TIMEOUT_MAX_S ? seconds : TIMEOUT_MAX_S) * 1000;
}

void
hosts_read(Hosts *hosts, const char *dsn)
{
	Sources sources = {PQconninfoParse(dsn, NULL), PQconndefaults()};

	read_list(hosts, &sources);
	read_timeout(hosts, &sources);
	PQconninfoFree(sources.dsn);
	PQconninfoFree(sources.defaults);
}

void
hosts_free(Hosts *hosts)
{
	for (int i = 0; i < hosts->n; i++)
	{
		free(hosts->list[i].name);
		free(hosts->list[i].address);
		free(hosts->list[i].port);
	}
	free(hosts->list);
}
