/*
 * hooks.c
 *		Keeps the workers out of the way of commands on their database.
 *
 * DROP DATABASE, ALTER DATABASE ... RENAME and ... SET TABLESPACE, and CREATE
 * DATABASE with it as template, want no one to be connected.  The workers of
 * that database end before such a command runs and stay away until it is over.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#include "hooks.h"
#include "shmem.h"
#include "stats.h"
#include "worker.h"
#include "worklist.h"

/* A worker in the middle of a step ends within milliseconds; the command itself waits no longer. */
#define END_TIMEOUT_MS 5000

static ProcessUtility_hook_type prev_ProcessUtility_hook;

static const char *
option_text(List *options, const char *name)
{
	ListCell *cell;

	foreach (cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0 && option->arg != NULL)
			return defGetString(option);
	}
	return NULL;
}

/* The database that the command wants for itself; NULL for any other command. */
static const char *
wanted_database(Node *command)
{
	switch (nodeTag(command))
	{
		case T_DropdbStmt:
			return castNode(DropdbStmt, command)->dbname;
		case T_RenameStmt:
			if (castNode(RenameStmt, command)->renameType == OBJECT_DATABASE)
				return castNode(RenameStmt, command)->subname;
			return NULL;
		case T_CreatedbStmt:
			return option_text(castNode(CreatedbStmt, command)->options, "template");
		case T_AlterDatabaseStmt:
			if (option_text(castNode(AlterDatabaseStmt, command)->options, "tablespace") != NULL)
				return castNode(AlterDatabaseStmt, command)->dbname;
			return NULL;
		default:
			return NULL;
	}
}

/* Whoever may not run the command shall not be able to disturb the workers with it. */
static bool
may_want(Oid database)
{
	HeapTuple tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		return false;
	owner = ((Form_pg_database) GETSTRUCT(tuple))->datdba;
	ReleaseSysCache(tuple);
	return has_privs_of_role(GetUserId(), owner);
}

static bool
workers_ended(const Database *database)
{
	bool ended = true;

	LWLockAcquire(&queen_shared->lock, LW_SHARED);
	for (int kind = 0; kind < WORKER_KINDS; kind++)
		ended = ended && database->workers[kind].pid == 0;
	LWLockRelease(&queen_shared->lock);
	return ended;
}

static void
hold(Database *database)
{
	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	database->holds++;
	for (int kind = 0; kind < WORKER_KINDS; kind++)
		worker_signal_end(&database->workers[kind]);
	LWLockRelease(&queen_shared->lock);
}

static void
release(int code, Datum arg)
{
	Database *database = (Database *) DatumGetPointer(arg);
	Latch *launcher;

	LWLockAcquire(&queen_shared->lock, LW_EXCLUSIVE);
	database->holds--;
	launcher = queen_shared->launcher_latch;
	LWLockRelease(&queen_shared->lock);
	if (launcher != NULL)
		SetLatch(launcher);
}

static void
wait_for_end(const Database *database)
{
	while (!workers_ended(database))
		if (ConditionVariableTimedSleep(&queen_shared->worker_gone, END_TIMEOUT_MS,
										PG_WAIT_EXTENSION))
			break;
	ConditionVariableCancelSleep();
}

static void
run_command(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
			DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest,
								 qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest,
								qc);
}

/* The database that the command wants for itself, if whoever runs it may have it. */
static Oid
wanted_oid(PlannedStmt *pstmt)
{
	const char *name = wanted_database(pstmt->utilityStmt);
	Oid oid;

	if (name == NULL || IsAbortedTransactionBlockState())
		return InvalidOid;
	oid = get_database_oid(name, true);
	return OidIsValid(oid) && oid != MyDatabaseId && may_want(oid) ? oid : InvalidOid;
}

/* Its place in shared memory; NULL when no workers look after it. */
static Database *
find_place(Oid oid)
{
	Database *database;

	LWLockAcquire(&queen_shared->lock, LW_SHARED);
	database = database_find(oid);
	LWLockRelease(&queen_shared->lock);
	return database;
}

static void
run_alone(Database *database, PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
		  ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
		  DestReceiver *dest, QueryCompletion *qc)
{
	hold(database);
	PG_ENSURE_ERROR_CLEANUP(release, PointerGetDatum(database));
	{
		wait_for_end(database);
		run_command(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_END_ENSURE_ERROR_CLEANUP(release, PointerGetDatum(database));
	release(0, PointerGetDatum(database));
}

static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	Oid oid = wanted_oid(pstmt);
	bool drop = OidIsValid(oid) && IsA(pstmt->utilityStmt, DropdbStmt);
	Database *database = OidIsValid(oid) ? find_place(oid) : NULL;

	if (database == NULL)
		run_command(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		run_alone(database, pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (drop)
	{
		stats_forget_database(oid);
		worklist_forget_database(oid);
	}
}

void
hooks_init(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
