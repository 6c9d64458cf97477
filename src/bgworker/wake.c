/*
 * wake.c
 *		Tells the front ends which queues have something new.
 *
 * NOTIFY in a push would serialize the commits of all pushes.  So a commit only
 * notes its queues in shared memory and sets a latch, if anybody wants to hear
 * of it; this worker sends one notification for all of them, at most one per
 * queen.wake_delay.
 *
 * Channel queen_wake; the payload is the queues' ids, separated by commas, or
 * an asterisk for every queue.  A colon and a number after an id say whose
 * sessions made the news (queen.wake_origin), if all of it is theirs.
 */
#include "postgres.h"

#include "commands/async.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "gucs.h"
#include "listeners.h"
#include "shmem.h"
#include "uuid.h"
#include "wake.h"
#include "worker.h"

#define ITEM_MAX (UUID_TEXT_LEN + 12) /* id, colon, number, comma */

static char payload[WAKE_MAX * ITEM_MAX + 1]; /* of the next notification */

StaticAssertDecl(WAKE_MAX *ITEM_MAX < 8000, "a notification has less than 8000 bytes");

static WakeEntry *
list_find(WakeList *list, const pg_uuid_t *queue)
{
	for (int i = 0; i < list->n; i++)
		if (memcmp(&list->entries[i].queue, queue, sizeof(pg_uuid_t)) == 0)
			return &list->entries[i];
	return NULL;
}

/* The caller holds the list's lock. */
static void
list_add(WakeList *list, const pg_uuid_t *queue, int origin)
{
	WakeEntry *entry = list_find(list, queue);

	if (list->all)
		return;
	if (entry == NULL && list->n == WAKE_MAX)
		list->all = true;
	else if (entry == NULL)
		list->entries[list->n++] = (WakeEntry){*queue, origin};
	else if (entry->origin != origin)
		entry->origin = 0;
}

void
wake_list_add(const pg_uuid_t *queue, int origin)
{
	Database *database = database_mine();
	WakeList *list;
	Latch *latch = NULL;

	if (database == NULL || !listeners_want(origin))
		return;
	list = &database->wake;
	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	if (list->n == 0 && !list->all)
		latch = list->latch;
	list_add(list, queue, origin);
	LWLockRelease(&list->lock);
	if (latch != NULL)
		SetLatch(latch);
}

/* Returns where it stopped writing. */
static char *
append_entry(const WakeEntry *entry, char *out)
{
	Uuid id;

	memcpy(id.bytes, entry->queue.data, UUID_LEN);
	uuid_format(&id, out);
	out += UUID_TEXT_LEN;
	if (entry->origin != 0)
		out += sprintf(out, ":%d", entry->origin);
	return out;
}

/* Moves the list into the payload; false when nothing is new. */
static bool
take_list(void)
{
	WakeList *list = &worker_database()->wake;
	char *out = payload;

	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	if (list->all)
		*out++ = '*';
	for (int i = 0; i < list->n && !list->all; i++)
	{
		if (i > 0)
			*out++ = ',';
		out = append_entry(&list->entries[i], out);
	}
	list->all = false;
	list->n = 0;
	LWLockRelease(&list->lock);
	*out = '\0';
	return out > payload;
}

/* After a failure nobody knows any more which queues they were. */
static void
note_all(void)
{
	WakeList *list = &worker_database()->wake;

	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	list->all = true;
	LWLockRelease(&list->lock);
}

static void
notify(Step *step, StepResult *result)
{
	Async_Notify(WAKE_CHANNEL, payload);
	result->rows = 1;
}

static Step notify_step = {.name = "notify", .work = notify};

static void
forget_latch(int code, Datum arg)
{
	WakeList *list = &worker_database()->wake;

	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	list->latch = NULL;
	LWLockRelease(&list->lock);
}

/* What was noted while there was no worker is not remembered for certain. */
void
wake_start(void)
{
	WakeList *list = &worker_database()->wake;

	LWLockAcquire(&list->lock, LW_EXCLUSIVE);
	list->latch = MyLatch;
	list->all = true;
	LWLockRelease(&list->lock);
	before_shmem_exit(forget_latch, 0);
}

long
wake_cycle(void)
{
	long pause = worker_step_pause(&notify_step);

	if (pause > 0)
		return pause;
	if (!take_list())
		return WORKER_SLEEP;
	if (worker_step(&notify_step) == STEP_FAILED)
	{
		note_all();
		return worker_step_pause(&notify_step);
	}
	/* Who writes meanwhile shares the next notification. */
	pg_usleep(queen_wake_delay * 1000L);
	return 0;
}
