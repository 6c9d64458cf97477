/*
 * admin.c
 *		What the rare routes have in common.
 */
#include "admin.h"

#include <stdio.h>

/* The failure of a call, in the shape of its route. */
void
admin_reply_error(Request *req, const DbError *error)
{
	int status = db_error_status(error);

	if (status == 400 && error->column)
		http_reply_error_with(req, 400, error->message, "invalid", error->column);
	else
		http_reply_error(req, status, error->message);
}

/* Passes on the JSON that the function returned; NULL is 404. */
void
admin_on_json(DbCall *call, PGresult *res, const DbError *error)
{
	Request *req = call->ctx;
	Buf body = {0};

	if (error)
		admin_reply_error(req, error);
	else if (pgcol_is_null(res, 0, 0))
		http_reply_error(req, 404, "Queue not found");
	else
	{
		Span json = pgcol_span(res, 0, 0);

		buf_append(&body, json.ptr, json.len);
		http_reply(req, 200, &body);
	}
	PQclear(res);
}

/* A number that does not parse, or is negative, means the default. */
int
admin_number_arg(const Request *req, const char *name, int fallback, int max)
{
	Span text = target_arg(&req->target, name);
	int value = 0;

	if (text.len == 0 || text.len > 9)
		return fallback;
	for (size_t i = 0; i < text.len; i++)
	{
		if (text.ptr[i] < '0' || text.ptr[i] > '9')
			return fallback;
		value = value * 10 + (text.ptr[i] - '0');
	}
	return value < max ? value : max;
}

bool
admin_bool_arg(const Request *req, const char *name, bool fallback)
{
	static const char *const yes[] = {"true", "1", "yes"};
	static const char *const no[] = {"false", "0", "no"};
	Span text = target_arg(&req->target, name);

	for (int i = 0; i < 3; i++)
	{
		if (span_equals(text, span_of(yes[i])))
			return true;
		if (span_equals(text, span_of(no[i])))
			return false;
	}
	return fallback;
}

/* A name that nothing can have needs no look. */
bool
admin_refuse_name(Request *req, const char *what, const char *why)
{
	char text[128];

	if (why == NULL)
		return false;
	snprintf(text, sizeof(text), "%s %s", what, why);
	http_reply_error(req, 400, text);
	return true;
}

/* An empty filter is no filter. */
Span
admin_filter_arg(const Request *req, const char *name)
{
	Span text = target_arg(&req->target, name);

	return text.len > 0 ? text : (Span){NULL, 0};
}

/* Whether the time of day has hours and minutes only. */
static bool
is_whole_minute(Span text)
{
	size_t i = 0;
	int colons = 0;

	while (i < text.len && text.ptr[i] != 'T' && text.ptr[i] != ' ')
		i++;
	for (; i < text.len && strchr("Z+-", text.ptr[i]) == NULL; i++)
		colons += text.ptr[i] == ':';
	return colons == 1;
}

bool
admin_time_arg(Request *req, const char *name, bool whole, int64_t *time)
{
	Span text = target_arg(&req->target, name);
	char error[64];

	if (text.len == 0)
		return true;
	if (!pgtime_parse(text, time))
	{
		snprintf(error, sizeof(error), "%s is not a time", name);
		http_reply_error(req, 400, error);
		return false;
	}
	if (whole && is_whole_minute(text))
		*time += INT64_C(60000000);
	return true;
}
