/*
 * names.c
 *		What a queue, a partition, a consumer group may be called.
 */
#include "names.h"

#include "protocol.h"
#include "utf8.h"

static bool
has_control_character(Span s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char) s.ptr[i] < 0x20 || s.ptr[i] == 0x7f)
			return true;
	return false;
}

const char *
queue_name_check(Span name)
{
	if (!utf8_valid(name.ptr, name.len))
		return "is not valid UTF-8";
	if (has_control_character(name))
		return "holds a control character";
	if (utf8_length(name.ptr, name.len) > NAME_MAX_CHARS)
		return "is longer than 255 characters";
	return NULL;
}

const char *
name_check(Span name)
{
	return name.len == 0 ? "is empty" : queue_name_check(name);
}

const char *
transaction_id_check(Span id)
{
	if (id.len == 0)
		return "is empty";
	if (!utf8_valid(id.ptr, id.len))
		return "is not valid UTF-8";
	if (has_control_character(id))
		return "holds a control character";
	if (id.len > TRANSACTION_ID_MAX)
		return "is longer than 65535 bytes";
	return NULL;
}
