/*
 * payload.c
 *		What the messages carry: the lines of a file, or orders that are made up.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MADE_UP 1024

static Buf payloads; /* of Span */
static size_t n_payloads;

static void
add(const char *text, size_t len)
{
	Span payload = {strndup(text, len), len};

	buf_append(&payloads, &payload, sizeof(payload));
	n_payloads++;
}

/* One JSON value per line. */
static void
read_file(const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	if (file == NULL)
	{
		perror(path);
		exit(2);
	}
	while ((len = getline(&line, &size, file)) > 0)
	{
		while (len > 0 && strchr("\r\n", line[len - 1]))
			len--;
		if (len > 0)
			add(line, (size_t) len);
	}
	free(line);
	fclose(file);
}

/* Names repeat and numbers do not, as in data that somebody would send. */
static void
make_up(unsigned int *random)
{
	static const char *const states[] = {"received", "paid", "packed", "shipped", "returned"};
	Buf text = {0};

	buf_printf(&text,
			   "{\"order\":%d,\"customer\":\"c-%05d\",\"status\":\"%s\",\"total\":%d.%02d,"
			   "\"currency\":\"EUR\",\"items\":[",
			   rand_r(random), rand_r(random) % 100000, states[rand_r(random) % 5],
			   rand_r(random) % 1000, rand_r(random) % 100);
	for (int i = 0; i == 0 || text.len + 60 < (size_t) options.payload; i++)
		buf_printf(&text, "%s{\"sku\":\"%08x\",\"quantity\":%d}", i ? "," : "",
				   (unsigned int) rand_r(random), 1 + rand_r(random) % 9);
	buf_append_str(&text, "],\"note\":\"");
	while (text.len + 2 < (size_t) options.payload)
		buf_append_char(&text, (char) ('a' + rand_r(random) % 26));
	buf_append_str(&text, "\"}");
	add(text.data, text.len);
	buf_free(&text);
}

void
payloads_open(void)
{
	unsigned int random = (unsigned int) options.seed;

	if (options.payloads)
		read_file(options.payloads);
	else
		for (int i = 0; i < MADE_UP; i++)
			make_up(&random);
	if (n_payloads == 0)
	{
		fprintf(stderr, "no payload in %s\n", options.payloads);
		exit(2);
	}
}

Span
payload_choose(unsigned int *random)
{
	return ((const Span *) payloads.data)[(size_t) rand_r(random) % n_payloads];
}
