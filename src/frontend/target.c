/*
 * target.c
 *		The request target: path segments and query arguments.
 */
#include "target.h"

#include "hex.h"

#include <stdlib.h>

/*
 * Decodes up to a byte in "stop"; returns where it stopped, or NULL at a bad
 * escape.  In a path, which clients send with names as they are, a percent
 * sign that begins no escape stands for itself.
 */
static const char *
decode(const char *raw, const char *stop, bool in_query, char **out, Span *span)
{
	char *dst = *out;

	span->ptr = dst;
	while (*raw && strchr(stop, *raw) == NULL)
	{
		if (*raw == '%')
		{
			int byte = hex_byte(raw + 1);

			if (byte < 0 && in_query)
				return NULL;
			*dst++ = byte < 0 ? '%' : (char) byte;
			raw += byte < 0 ? 1 : 3;
		}
		else
		{
			*dst++ = *raw == '+' && in_query ? ' ' : *raw;
			raw++;
		}
	}
	span->len = (size_t) (dst - span->ptr);
	*out = dst;
	return raw;
}

static const char *
parse_args(Target *target, const char *raw, char **out)
{
	while (*raw && *raw != '#')
	{
		TargetArg *arg = &target->args[target->n_args];

		if (target->n_args == TARGET_MAX_ARGS)
			return "too many query arguments";
		raw = decode(raw, "=&#", true, out, &arg->name);
		if (raw == NULL)
			return "bad percent-encoding in the query";
		arg->value = (Span){*out, 0};
		if (*raw == '=')
		{
			raw = decode(raw + 1, "&#", true, out, &arg->value);
			if (raw == NULL)
				return "bad percent-encoding in the query";
		}
		if (arg->name.len > 0)
			target->n_args++;
		if (*raw == '&')
			raw++;
	}
	return NULL;
}

/* Two readers of the request line could cut it at different spaces. */
static bool
has_space_or_control(const char *raw)
{
	for (; *raw; raw++)
		if ((unsigned char) *raw <= ' ' || *raw == 0x7f)
			return true;
	return false;
}

const char *
target_parse(Target *target, const char *raw)
{
	char *out;

	memset(target, 0, sizeof(*target));
	target->text = out = malloc(strlen(raw) + 1);
	if (out == NULL)
		return "out of memory";
	if (has_space_or_control(raw))
		return "the request target holds a space or a control character";

	/* Absolute form, as sent to a proxy. */
	if (strncmp(raw, "http://", 7) == 0 || strncmp(raw, "https://", 8) == 0)
		raw = strstr(raw, "//") + 2 + strcspn(strstr(raw, "//") + 2, "/?#");

	while (*raw == '/')
	{
		if (raw[1] == '\0' || raw[1] == '?' || raw[1] == '#')
		{
			target->trailing_slash = target->n_segments < TARGET_MAX_SEGMENTS;
			raw++;
			break;
		}
		if (target->n_segments == TARGET_MAX_SEGMENTS)
			return "too many path segments";
		raw = decode(raw + 1, "/?#", false, &out, &target->segments[target->n_segments++]);
	}
	if (*raw == '?')
		return parse_args(target, raw + 1, &out);
	return NULL;
}

void
target_free(Target *target)
{
	free(target->text);
	target->text = NULL;
}

Span
target_arg(const Target *target, const char *name)
{
	for (int i = 0; i < target->n_args; i++)
		if (span_equals(target->args[i].name, span_of(name)))
			return target->args[i].value;
	return (Span){NULL, 0};
}
