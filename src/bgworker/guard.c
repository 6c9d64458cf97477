/*
 * guard.c
 *		Which transactions may write to the log.
 *
 * Deduplication, the offset allocator and the claim of a lease read rows
 * after they obtained a lock, and must see what the lock's last holder
 * committed.  Only READ COMMITTED gives each statement such a snapshot.
 *
 * A prepared transaction would keep partition and cursor rows locked with no
 * session behind them, so PREPARE TRANSACTION is refused after such a call.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"

#include "function.h"
#include "guard.h"

QUEEN_FUNCTION(log_guard);

/* The current transaction wrote to the log; a savepoint's end does not clear it. */
static bool log_touched = false;

static void
refuse_prepare(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (log_touched)
				ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
								errmsg("cannot PREPARE a transaction that used a queue")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			log_touched = false;
			break;
		default:
			break;
	}
}

void
guard_write(void)
{
	static bool registered = false;

	if (IsolationUsesXactSnapshot())
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("queue functions need isolation level READ COMMITTED")));
	if (!registered)
	{
		RegisterXactCallback(refuse_prepare, NULL);
		registered = true;
	}
	log_touched = true;
}

/*
 * log_guard()
 */
Datum
log_guard(PG_FUNCTION_ARGS)
{
	guard_write();
	PG_RETURN_VOID();
}
