/*
 * pgbin.h
 *		PostgreSQL's binary format: arguments of a call, columns of its answer.
 */
#ifndef QUEEN_PGBIN_H
#define QUEEN_PGBIN_H

#include "buf.h"
#include "uuid.h"

#include <libpq-fe.h>

/* Type OIDs from PostgreSQL's catalog; they never change. */
#define OID_BOOL 16
#define OID_BYTEA 17
#define OID_INT8 20
#define OID_INT4 23
#define OID_TEXT 25
#define OID_TIMESTAMPTZ 1184
#define OID_UUID 2950
#define OID_BOOL_ARRAY 1000
#define OID_BYTEA_ARRAY 1001
#define OID_INT4_ARRAY 1007
#define OID_TEXT_ARRAY 1009
#define OID_TIMESTAMPTZ_ARRAY 1185
#define OID_UUID_ARRAY 2951

/* One-dimensional array under construction. */
typedef struct PgArray
{
	Buf buf;
	uint32_t count;
} PgArray;

extern void pgarray_begin(PgArray *array, Oid element);
extern void pgarray_add(PgArray *array, const void *data, size_t len);
extern void pgarray_add_null(PgArray *array);
extern void pgarray_add_span(PgArray *array, Span span); /* ptr NULL: NULL */
extern void pgarray_add_int(PgArray *array, int32_t value);
extern void pgarray_add_bool(PgArray *array, bool value);
extern void pgarray_add_uuid(PgArray *array, const Uuid *uuid); /* NULL: NULL */
extern void pgarray_add_int64(PgArray *array, int64_t value);
extern void pgarray_end(PgArray *array);

/* Columns of a binary result row. */
extern bool pgcol_is_null(const PGresult *res, int row, int col);
extern int32_t pgcol_int(const PGresult *res, int row, int col);
extern int64_t pgcol_int64(const PGresult *res, int row, int col);
extern bool pgcol_bool(const PGresult *res, int row, int col);
extern Span pgcol_span(const PGresult *res, int row, int col); /* ptr NULL when NULL */
extern void pgcol_uuid(const PGresult *res, int row, int col, Uuid *out);

/* Microseconds since 2000-01-01 00:00 UTC, PostgreSQL's timestamptz. */
#define PG_EPOCH_UNIX_US INT64_C(946684800000000)
#define PGTIME_INFINITY INT64_MAX
#define PGTIME_MINUS_INFINITY INT64_MIN
extern int64_t pgtime_now(void);
/* YYYY-MM-DDTHH:MM:SS.ffffffZ; "digits" of the fraction, 3 or 6. */
extern void pgtime_format(Buf *out, int64_t pgtime, int digits);

/*
 * YYYY-MM-DD, then optionally T or a space, HH:MM[:SS[.f...]] and Z or an
 * offset; UTC when there is none.  False when it is no such time.
 */
extern bool pgtime_parse(Span text, int64_t *pgtime);

/* Cursor over the elements of a binary array column. */
typedef struct PgArrayReader
{
	const char *pos;
	int left;
} PgArrayReader;

extern void pgarray_read(PgArrayReader *reader, const PGresult *res, int row, int col);
extern bool pgarray_next(PgArrayReader *reader, Span *element);
extern int32_t pgspan_int(Span span);

#endif
