/*
 * history.c
 *		What the clients did and saw, as JSON lines.
 *
 * "outcome" is ok for an answer of success, fail for a request that certainly
 * did nothing, and unknown for everything else: a connection that broke after
 * the request was written, or an answer that the server is not available.
 */
#include "load.h"

static FILE *file;
static Buf line;

bool
history_open(const char *path)
{
	file = fopen(path, "w");
	return file != NULL;
}

static const char *
outcome(const Client *client, ExchangeEnd end)
{
	int status = client->exchange.status;

	if (end == EXCHANGE_NOT_SENT)
		return "fail";
	if (end == EXCHANGE_UNKNOWN || status >= 500)
		return "unknown";
	return status < 300 ? "ok" : "fail";
}

Buf *
history_begin(const Client *client, const char *op, ExchangeEnd end)
{
	int status = end == EXCHANGE_ANSWERED ? client->exchange.status : 0;

	if (end == EXCHANGE_UNKNOWN)
		totals.unknown++;
	if (status >= 400)
		totals.refused++;
	buf_reset(&line);
	buf_printf(&line,
			   "{\"op\":\"%s\",\"client\":%d,\"invoke\":%lld,\"complete\":%lld,\"outcome\":\"%s\","
			   "\"status\":%d",
			   op, client->number, (long long) client->invoked, (long long) clock_us(),
			   outcome(client, end), status);
	return &line;
}

void
history_end(void)
{
	buf_append_str(&line, "}\n");
	if (file)
		fwrite(line.data, 1, line.len, file);
}

void
history_close(void)
{
	if (file)
		fclose(file);
	buf_free(&line);
}
