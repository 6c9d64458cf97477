/*
 * queen.c
 *		Start of the extension's library.
 *
 * The library may be preloaded with the server or loaded by the first call
 * of one of its functions; whatever needs the former checks for it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "dedup_window.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	dedup_window_init();
	MarkGUCPrefixReserved("queen");
}
