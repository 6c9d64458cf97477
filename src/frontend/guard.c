/*
 * guard.c
 *		Refuses requests whose framing is ambiguous.
 */
#include "guard.h"

#include <string.h>
#include <strings.h>

typedef struct HeaderScan
{
	int count;
	size_t bytes;
	int hosts;
	int content_lengths;
	int transfer_encodings;
	int authorizations;
	int tenants;
	const char *content_length;
	const char *transfer_encoding;
	const char *content_encoding;
	const char *error;
} HeaderScan;

/* RFC 9110 token. */
static bool
is_token(const char *s)
{
	if (*s == '\0')
		return false;
	for (; *s; s++)
	{
		unsigned char c = (unsigned char) *s;

		if ((c < 'a' || c > 'z') && c != '-' &&
			(c <= ' ' || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c)))
			return false;
	}
	return true;
}

static enum MHD_Result
scan_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
	HeaderScan *scan = arg;

	(void) kind;
	if (value == NULL)
		value = "";
	scan->count++;
	scan->bytes += strlen(name) + strlen(value) + 4;
	if (!is_token(name))
		scan->error = "header name is not a token";
	if (strpbrk(value, "\r\n"))
		scan->error = "header value holds a line break";
	if (strcasecmp(name, "Host") == 0)
		scan->hosts++;
	else if (strcasecmp(name, "Content-Length") == 0)
	{
		scan->content_lengths++;
		scan->content_length = value;
	}
	else if (strcasecmp(name, "Transfer-Encoding") == 0)
	{
		scan->transfer_encodings++;
		scan->transfer_encoding = value;
	}
	else if (strcasecmp(name, "Content-Encoding") == 0)
		scan->content_encoding = value;
	else if (strcasecmp(name, "Authorization") == 0)
		scan->authorizations++;
	else if (strcasecmp(name, "X-Queen-Tenant") == 0)
		scan->tenants++;
	return MHD_YES;
}

/* Digits only; -1 when it is anything else, INT64_MAX when too large to hold. */
static int64_t
parse_length(const char *text)
{
	int64_t value = 0;

	if (*text == '\0')
		return -1;
	for (; *text; text++)
	{
		if (*text < '0' || *text > '9')
			return -1;
		if (value > (INT64_MAX - 9) / 10)
			return INT64_MAX;
		value = value * 10 + (*text - '0');
	}
	return value;
}

static GuardVerdict
refuse(int status, const char *error)
{
	return (GuardVerdict){.status = status, .error = error, .content_length = -1};
}

static GuardVerdict
check_framing(const HeaderScan *scan, bool http_1_1)
{
	GuardVerdict verdict = {.content_length = -1, .chunked = scan->transfer_encodings > 0};

	if (scan->content_lengths > 1)
		return refuse(400, "more than one Content-Length");
	if (scan->transfer_encodings > 1)
		return refuse(400, "more than one Transfer-Encoding");
	if (scan->content_lengths && scan->transfer_encodings)
		return refuse(400, "Content-Length beside Transfer-Encoding");
	if (scan->transfer_encodings && !http_1_1)
		return refuse(400, "Transfer-Encoding before HTTP/1.1");
	if (scan->transfer_encodings && strcasecmp(scan->transfer_encoding, "chunked") != 0)
		return refuse(400, "Transfer-Encoding is not chunked");
	if (scan->content_lengths)
	{
		verdict.content_length = parse_length(scan->content_length);
		if (verdict.content_length < 0)
			return refuse(400, "Content-Length is not a number");
	}
	return verdict;
}

GuardVerdict
guard_check(struct MHD_Connection *connection, const char *version)
{
	HeaderScan scan = {0};
	bool http_1_1 = strcmp(version, "HTTP/1.0") != 0;

	if (strncmp(version, "HTTP/1.", 7) != 0)
		return refuse(505, "HTTP version not supported");
	MHD_get_connection_values(connection, MHD_HEADER_KIND, scan_header, &scan);
	if (scan.count > GUARD_MAX_HEADERS)
		return refuse(431, "more than 100 headers");
	if (scan.bytes > GUARD_MAX_HEADER_BYTES)
		return refuse(431, "header block over 16 KiB");
	if (scan.error)
		return refuse(400, scan.error);
	if (scan.hosts > 1 || (scan.hosts == 0 && http_1_1))
		return refuse(400, "exactly one Host header is required");
	if (scan.authorizations > 1)
		return refuse(400, "more than one Authorization");
	if (scan.tenants > 1)
		return refuse(400, "more than one X-Queen-Tenant");
	if (scan.content_encoding && strcasecmp(scan.content_encoding, "identity") != 0)
		return refuse(415, "compressed bodies are not supported");
	return check_framing(&scan, http_1_1);
}
