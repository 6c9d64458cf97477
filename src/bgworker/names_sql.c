/*
 * names_sql.c
 *		What a queue, a partition, a consumer group may be called, for SQL.
 */
#include "postgres.h"

#include "fmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "function.h"
#include "names.h"

QUEEN_FUNCTION(log_valid_name);

/*
 * log_valid_name(name text) returns boolean
 */
Datum
log_valid_name(PG_FUNCTION_ARGS)
{
	text *name = PG_GETARG_TEXT_PP(0);

	PG_RETURN_BOOL(queue_name_check((Span){VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)}) == NULL);
}
