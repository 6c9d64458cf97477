/*
 * jansson_verdict.c
 *		What another JSON parser thinks of a text.
 */
#include "jansson_verdict.h"

#include <jansson.h>

JanssonVerdict
jansson_verdict(const char *text, size_t len)
{
	json_error_t error;
	json_t *json = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);

	if (json != NULL)
	{
		json_decref(json);
		return JANSSON_ACCEPTS;
	}
	switch (json_error_code(&error))
	{
		case json_error_numeric_overflow:
		case json_error_null_byte_in_key:
			return JANSSON_CANNOT_HOLD;
		default:
			return JANSSON_REFUSES;
	}
}
