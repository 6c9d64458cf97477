/*
 * pop_args.c
 *		What a pop asks for: the arguments of its request.
 */
#include "pop.h"

#include "clock.h"
#include "conf.h"
#include "names.h"
#include "protocol.h"
#include "worker.h"

#include <stdio.h>
#include <strings.h>

#define BATCH_DEFAULT 200
#define BATCH_MAX 10000
#define TIMEOUT_MAX_MS 300000
#define LEASE_MAX_SECONDS 86400

typedef struct Args
{
	const Target *target;
	char *error; /* empty: none */
	size_t error_size;
} Args;

/* Absent or empty keeps *out. */
static void
int_arg(Args *args, const char *name, int64_t max, int *out)
{
	Span text = target_arg(args->target, name);
	size_t i = text.len > 0 && *text.ptr == '-';
	int64_t value = 0;

	if (text.len == 0)
		return;
	if (i == text.len || text.len > 12)
	{
		snprintf(args->error, args->error_size, "%s must be an integer", name);
		return;
	}
	for (; i < text.len; i++)
	{
		if (text.ptr[i] < '0' || text.ptr[i] > '9')
		{
			snprintf(args->error, args->error_size, "%s must be an integer", name);
			return;
		}
		value = value * 10 + (text.ptr[i] - '0');
	}
	if (*text.ptr == '-')
		value = -1; /* below zero all mean the same */
	if (value > max)
		snprintf(args->error, args->error_size, "%s must be at most %lld", name, (long long) max);
	*out = (int) value;
}

static void
bool_arg(Args *args, const char *name, bool *out)
{
	Span text = target_arg(args->target, name);

	if (text.len == 0)
		return;
	if (span_equals(text, SPAN_LITERAL("true")) || span_equals(text, SPAN_LITERAL("1")))
		*out = true;
	else if (span_equals(text, SPAN_LITERAL("false")) || span_equals(text, SPAN_LITERAL("0")))
		*out = false;
	else
		snprintf(args->error, args->error_size, "%s must be true or false", name);
}

static Span
trim(Span text)
{
	while (text.len > 0 && *text.ptr == ' ')
		text = (Span){text.ptr + 1, text.len - 1};
	while (text.len > 0 && text.ptr[text.len - 1] == ' ')
		text.len--;
	return text;
}

static bool
is_new_mode(Span mode)
{
	static const char *const names[] = {"new", "new-only", "new_only", "newonly"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (mode.len == strlen(names[i]) && strncasecmp(mode.ptr, names[i], mode.len) == 0)
			return true;
	return false;
}

/* Where the group starts, should this be its first contact. */
static void
parse_subscription(Pop *pop, const Target *target, const char *default_mode)
{
	Span mode = trim(target_arg(target, "subscriptionMode"));
	Span from = trim(target_arg(target, "subscriptionFrom"));

	pop->start_from = INT64_MIN;
	pop->start_new = is_new_mode(mode.len > 0 ? mode : span_of(default_mode));
	/* "now", and what is no time at all, mean new. */
	if (from.len > 0 && !pgtime_parse(from, &pop->start_from))
	{
		pop->start_from = INT64_MIN;
		pop->start_new = true;
	}
}

static void
check_names(Args *args, const Pop *pop)
{
	const char *why;

	if ((why = queue_name_check(pop->queue)) != NULL)
		snprintf(args->error, args->error_size, "queue %s", why);
	else if ((why = queue_name_check(pop->namespace)) != NULL)
		snprintf(args->error, args->error_size, "namespace %s", why);
	else if ((why = queue_name_check(pop->task)) != NULL)
		snprintf(args->error, args->error_size, "task %s", why);
	else if (pop->partition.ptr && (why = name_check(pop->partition)) != NULL)
		snprintf(args->error, args->error_size, "partition %s", why);
	else if ((why = name_check(pop->group)) != NULL)
		snprintf(args->error, args->error_size, "consumerGroup %s", why);
}

bool
pop_read_args(Pop *pop, char *error, size_t error_size)
{
	const Request *req = pop->req;
	const struct Conf *conf = req->worker->conf;
	int timeout = (int) conf->pop_timeout_ms;
	Args args = {&req->target, error, error_size};

	*error = '\0';
	pop->queue = pop->discovery ? SPAN_LITERAL("") : req->params[0];
	pop->partition = req->params[1];
	pop->group = target_arg(&req->target, "consumerGroup");
	if (pop->group.len == 0)
		pop->group = span_of(QUEUE_MODE_GROUP);
	pop->batch = BATCH_DEFAULT;
	pop->max_partitions = 1;
	check_names(&args, pop);
	int_arg(&args, "batch", BATCH_MAX, &pop->batch);
	int_arg(&args, "partitions", INT32_MAX, &pop->max_partitions);
	int_arg(&args, "leaseSeconds", LEASE_MAX_SECONDS, &pop->lease_seconds);
	int_arg(&args, "timeout", TIMEOUT_MAX_MS, &timeout);
	bool_arg(&args, "autoAck", &pop->auto_ack);
	bool_arg(&args, "wait", &pop->wait);
	if (pop->batch < 1)
		pop->batch = 1;
	if (timeout < 0)
		timeout = 0;
	pop->deadline = clock_ms() + timeout;
	parse_subscription(pop, &req->target, conf->subscription_mode);
	return *error == '\0';
}
