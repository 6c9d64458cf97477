/*
 * queen.c
 *		Start of the extension's library.
 *
 * The library may be preloaded with the server or loaded by the first call
 * of one of its functions; whatever needs the former checks for it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "dedup_window.h"
#include "gucs.h"
#include "hooks.h"
#include "launcher.h"
#include "listeners.h"
#include "shmem.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	dedup_window_init();
	gucs_init();
	MarkGUCPrefixReserved("queen");
	if (!process_shared_preload_libraries_in_progress)
		return;
	shmem_init();
	hooks_init();
	listeners_init();
	launcher_register();
}
