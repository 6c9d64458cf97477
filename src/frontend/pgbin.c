/*
 * pgbin.c
 *		PostgreSQL's binary format: arguments of a call, columns of its answer.
 */
#include "pgbin.h"

#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <time.h>

static void
append_int32(Buf *buf, uint32_t value)
{
	value = htonl(value);
	buf_append(buf, &value, 4);
}

/* Header: dimensions, null flag, element type, then length and lower bound. */
void
pgarray_begin(PgArray *array, Oid element)
{
	array->count = 0;
	buf_reset(&array->buf);
	append_int32(&array->buf, 1);
	append_int32(&array->buf, 0);
	append_int32(&array->buf, element);
	append_int32(&array->buf, 0); /* patched by pgarray_end() */
	append_int32(&array->buf, 1);
}

void
pgarray_add(PgArray *array, const void *data, size_t len)
{
	append_int32(&array->buf, (uint32_t) len);
	buf_append(&array->buf, data, len);
	array->count++;
}

void
pgarray_add_null(PgArray *array)
{
	append_int32(&array->buf, UINT32_MAX);
	if (!array->buf.failed)
		array->buf.data[7] = 1;
	array->count++;
}

void
pgarray_add_span(PgArray *array, Span span)
{
	if (span.ptr == NULL)
		pgarray_add_null(array);
	else
		pgarray_add(array, span.ptr, span.len);
}

void
pgarray_add_int(PgArray *array, int32_t value)
{
	uint32_t net = htonl((uint32_t) value);

	pgarray_add(array, &net, 4);
}

void
pgarray_add_bool(PgArray *array, bool value)
{
	char c = value;

	pgarray_add(array, &c, 1);
}

void
pgarray_add_uuid(PgArray *array, const Uuid *uuid)
{
	if (uuid == NULL)
		pgarray_add_null(array);
	else
		pgarray_add(array, uuid->bytes, 16);
}

void
pgarray_add_int64(PgArray *array, int64_t value)
{
	uint64_t net = htobe64((uint64_t) value);

	pgarray_add(array, &net, 8);
}

void
pgarray_end(PgArray *array)
{
	uint32_t net = htonl(array->count);

	if (!array->buf.failed)
		memcpy(array->buf.data + 12, &net, 4);
}

bool
pgcol_is_null(const PGresult *res, int row, int col)
{
	return PQgetisnull(res, row, col);
}

int32_t
pgspan_int(Span span)
{
	uint32_t net;

	assert(span.ptr != NULL);
	memcpy(&net, span.ptr, 4);
	return (int32_t) ntohl(net);
}

int32_t
pgcol_int(const PGresult *res, int row, int col)
{
	return pgspan_int(pgcol_span(res, row, col));
}

int64_t
pgcol_int64(const PGresult *res, int row, int col)
{
	uint64_t net;

	memcpy(&net, PQgetvalue(res, row, col), 8);
	return (int64_t) be64toh(net);
}

bool
pgcol_bool(const PGresult *res, int row, int col)
{
	return !PQgetisnull(res, row, col) && *PQgetvalue(res, row, col) != 0;
}

Span
pgcol_span(const PGresult *res, int row, int col)
{
	if (PQgetisnull(res, row, col))
		return (Span){NULL, 0};
	return (Span){PQgetvalue(res, row, col), (size_t) PQgetlength(res, row, col)};
}

void
pgcol_uuid(const PGresult *res, int row, int col, Uuid *out)
{
	memcpy(out->bytes, PQgetvalue(res, row, col), 16);
}

int64_t
pgtime_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000 - PG_EPOCH_UNIX_US;
}

void
pgtime_format(Buf *out, int64_t pgtime, int digits)
{
	int64_t us = pgtime + PG_EPOCH_UNIX_US;
	time_t seconds = (time_t) (us / 1000000);
	int fraction = (int) (us % 1000000);
	struct tm tm;

	if (fraction < 0)
	{
		fraction += 1000000;
		seconds--;
	}
	gmtime_r(&seconds, &tm);
	buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%0*dZ", tm.tm_year + 1900, tm.tm_mon + 1,
			   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, digits,
			   digits == 3 ? fraction / 1000 : fraction);
}

/* Exactly n digits. */
static bool
take_number(Span *in, size_t n, int *out)
{
	*out = 0;
	if (in->len < n)
		return false;
	for (size_t i = 0; i < n; i++)
	{
		if (in->ptr[i] < '0' || in->ptr[i] > '9')
			return false;
		*out = *out * 10 + (in->ptr[i] - '0');
	}
	in->ptr += n;
	in->len -= n;
	return true;
}

static bool
take_char(Span *in, const char *any)
{
	if (in->len == 0 || *in->ptr == '\0' || strchr(any, *in->ptr) == NULL)
		return false;
	in->ptr++;
	in->len--;
	return true;
}

/* The fraction's first six digits, as microseconds. */
static int
take_fraction(Span *in)
{
	int micros = 0;
	int digits = 0;

	for (; in->len > 0 && *in->ptr >= '0' && *in->ptr <= '9'; in->ptr++, in->len--)
		if (digits++ < 6)
			micros = micros * 10 + (*in->ptr - '0');
	for (; digits < 6; digits++)
		micros *= 10;
	return micros;
}

/* Z, +HH:MM, +HHMM, +HH or nothing; seconds east of UTC.  A query turns '+' into a space. */
static bool
take_zone(Span *in, int *offset)
{
	bool west = in->len > 0 && *in->ptr == '-';
	int hours, minutes = 0;

	*offset = 0;
	if (in->len == 0 || take_char(in, "Zz"))
		return in->len == 0;
	if (!take_char(in, "+- ") || !take_number(in, 2, &hours))
		return false;
	take_char(in, ":");
	if (in->len > 0 && !take_number(in, 2, &minutes))
		return false;
	*offset = (hours * 60 + minutes) * (west ? -60 : 60);
	return in->len == 0 && hours < 24 && minutes < 60;
}

bool
pgtime_parse(Span in, int64_t *pgtime)
{
	struct tm tm = {0};
	int micros = 0;
	int offset;

	if (!take_number(&in, 4, &tm.tm_year) || !take_char(&in, "-") ||
		!take_number(&in, 2, &tm.tm_mon) || !take_char(&in, "-") ||
		!take_number(&in, 2, &tm.tm_mday))
		return false;
	if (take_char(&in, "Tt "))
	{
		if (!take_number(&in, 2, &tm.tm_hour) || !take_char(&in, ":") ||
			!take_number(&in, 2, &tm.tm_min))
			return false;
		if (take_char(&in, ":") && !take_number(&in, 2, &tm.tm_sec))
			return false;
		if (take_char(&in, ".,"))
			micros = take_fraction(&in);
	}
	if (!take_zone(&in, &offset) || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 ||
		tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
		return false;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	*pgtime = ((int64_t) timegm(&tm) - offset) * 1000000 + micros - PG_EPOCH_UNIX_US;
	return true;
}

void
pgarray_read(PgArrayReader *reader, const PGresult *res, int row, int col)
{
	Span column = pgcol_span(res, row, col);

	reader->left = 0;
	if (column.len < 20)
		return; /* NULL, or an empty array: no dimension */
	reader->left = pgspan_int((Span){column.ptr + 12, 4});
	reader->pos = column.ptr + 20;
}

bool
pgarray_next(PgArrayReader *reader, Span *element)
{
	int32_t len;

	if (reader->left == 0)
		return false;
	reader->left--;
	len = pgspan_int((Span){reader->pos, 4});
	reader->pos += 4;
	*element = (Span){len < 0 ? NULL : reader->pos, len < 0 ? 0 : (size_t) len};
	if (len > 0)
		reader->pos += len;
	return true;
}
