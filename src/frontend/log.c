/*
 * log.c
 *		One line per event on stderr, written with one call so that lines of
 *		several threads do not mix.
 */
#include "log.h"

#include "buf.h"
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static LogLevel log_level = LOG_LEVEL_INFO;
static bool log_as_json = false;

void
log_setup(const char *level, bool json)
{
	for (int i = 0; i < 4; i++)
		if (strcasecmp(level, level_names[i]) == 0)
			log_level = (LogLevel) i;
	log_as_json = json;
}

static void
append_timestamp(Buf *line)
{
	struct timespec now;
	struct tm tm;
	char text[32];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	buf_printf(line, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

void
log_event(LogLevel level, const char *message, ...)
{
	Buf line = {0};
	va_list args;
	const char *name;

	if (level > log_level)
		return;
	if (log_as_json)
		buf_append_str(&line, "{\"time\":\"");
	append_timestamp(&line);
	if (log_as_json)
	{
		buf_printf(&line, "\",\"level\":\"%s\",\"message\":", level_names[level]);
		json_write_string(&line, message, strlen(message));
	}
	else
		buf_printf(&line, " %s %s", level_names[level], message);

	va_start(args, message);
	while ((name = va_arg(args, const char *)) != NULL)
	{
		const char *value = va_arg(args, const char *);

		if (value == NULL)
			value = "";
		buf_printf(&line, log_as_json ? ",\"%s\":" : " %s=", name);
		json_write_string(&line, value, strlen(value));
	}
	va_end(args);

	buf_append_str(&line, log_as_json ? "}\n" : "\n");
	if (!line.failed && write(STDERR_FILENO, line.data, line.len) < 0)
	{
		/* Nowhere left to say so. */
	}
	buf_free(&line);
}
