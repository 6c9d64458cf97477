/*
 * listeners.c
 *		Which sessions listen to wake-up notifications.
 *
 * A front end knows what its own sessions did.  Where it is the only one, and
 * where nobody listens, each push would pay for a notification that is of no
 * use.  PostgreSQL does not tell who listens to what, so LISTEN is watched here.
 *
 * A session is entered before its LISTEN takes effect: what was committed
 * while it was not yet here, it finds when it looks after its LISTEN.  It stays
 * until it ends.  That it has said UNLISTEN meanwhile, or rolled back, makes for
 * notifications that nobody reads.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"

#include "gucs.h"
#include "listeners.h"

typedef struct Listener
{
	Oid database;
	int origin; /* its queen.wake_origin when it said LISTEN */
} Listener;

typedef struct Listeners
{
	LWLock lock; /* protects the rest */
	int n;
	Listener listeners[FLEXIBLE_ARRAY_MEMBER]; /* in no order; each session has one at most */
} Listeners;

static Listeners *shared; /* NULL: no shared memory */
static Listener own;	  /* as it was entered; no database: it was not */
static ProcessUtility_hook_type prev_ProcessUtility_hook;

/* The caller holds the lock. */
static void
remove_own(void)
{
	int i = 0;

	while (shared->listeners[i].database != own.database ||
		   shared->listeners[i].origin != own.origin)
		i++;
	shared->listeners[i] = shared->listeners[--shared->n];
}

static void
at_session_end(int code, Datum arg)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	remove_own();
	LWLockRelease(&shared->lock);
}

static void
enter(void)
{
	bool again = OidIsValid(own.database);

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (again)
		remove_own();
	own = (Listener){MyDatabaseId, queen_wake_origin};
	shared->listeners[shared->n++] = own;
	LWLockRelease(&shared->lock);
	if (!again)
		before_shmem_exit(at_session_end, 0);
}

bool
listeners_want(int origin)
{
	bool wanted = false;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->n && !wanted; i++)
		wanted = shared->listeners[i].database == MyDatabaseId &&
				 (origin == 0 || shared->listeners[i].origin != origin);
	LWLockRelease(&shared->lock);
	return wanted;
}

static void
process_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	if (IsA(pstmt->utilityStmt, ListenStmt) &&
		strcmp(castNode(ListenStmt, pstmt->utilityStmt)->conditionname, WAKE_CHANNEL) == 0)
		enter();
	(prev_ProcessUtility_hook ? prev_ProcessUtility_hook : standard_ProcessUtility)(
		pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

Size
listeners_shmem_size(void)
{
	return MAXALIGN(offsetof(Listeners, listeners) + MaxBackends * sizeof(Listener));
}

void
listeners_startup(int tranche)
{
	bool found;

	shared = ShmemInitStruct("queen listeners", listeners_shmem_size(), &found);
	if (!found)
	{
		LWLockInitialize(&shared->lock, tranche);
		shared->n = 0;
	}
}

void
listeners_init(void)
{
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
