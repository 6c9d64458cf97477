/*
 * lease_inbox.c
 *		How new leases reach the lease expiry worker.
 *
 * A buffer that commits append to and the worker empties.  While there is no
 * worker it fills up and then stays as it is; the worker that starts reads the
 * cursors anyway.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "lease_inbox.h"
#include "shmem.h"
#include "worker.h"

static Size
record_size(Size group_len)
{
	return MAXALIGN(offsetof(LeaseRecord, consumer_group) + group_len);
}

void
lease_inbox_add(const pg_uuid_t *partition_id, const char *consumer_group, Size group_len,
				TimestampTz expires_at)
{
	Database *database = database_mine();
	Size size = record_size(group_len);
	LeaseInbox *inbox;
	Latch *latch = NULL;

	if (database == NULL)
		return;
	inbox = &database->leases;
	LWLockAcquire(&inbox->lock, LW_EXCLUSIVE);
	if (!inbox->overflow && inbox->used + size <= LEASE_INBOX_SIZE)
	{
		LeaseRecord *record = (LeaseRecord *) (inbox->records.bytes + inbox->used);

		record->expires_at = expires_at;
		record->partition_id = *partition_id;
		record->group_len = group_len;
		memcpy(record->consumer_group, consumer_group, group_len);
		inbox->used += size;
	}
	else
		inbox->overflow = true;
	if (inbox->awaited || inbox->used > LEASE_INBOX_SIZE / 2)
		latch = inbox->latch;
	LWLockRelease(&inbox->lock);
	if (latch != NULL)
		SetLatch(latch);
}

static void
detach(int code, Datum arg)
{
	LeaseInbox *inbox = &worker_database()->leases;

	LWLockAcquire(&inbox->lock, LW_EXCLUSIVE);
	inbox->latch = NULL;
	LWLockRelease(&inbox->lock);
}

void
lease_inbox_attach(void)
{
	LeaseInbox *inbox = &worker_database()->leases;

	LWLockAcquire(&inbox->lock, LW_EXCLUSIVE);
	inbox->latch = MyLatch;
	LWLockRelease(&inbox->lock);
	before_shmem_exit(detach, 0);
}

uint32
lease_inbox_take(char *buffer, bool *overflow)
{
	LeaseInbox *inbox = &worker_database()->leases;
	uint32 used;

	LWLockAcquire(&inbox->lock, LW_EXCLUSIVE);
	used = inbox->used;
	memcpy(buffer, inbox->records.bytes, used);
	*overflow = inbox->overflow;
	inbox->used = 0;
	inbox->overflow = false;
	inbox->awaited = false;
	LWLockRelease(&inbox->lock);
	return used;
}

bool
lease_inbox_await(void)
{
	LeaseInbox *inbox = &worker_database()->leases;
	bool nothing;

	LWLockAcquire(&inbox->lock, LW_EXCLUSIVE);
	inbox->awaited = inbox->used == 0 && !inbox->overflow;
	nothing = inbox->awaited;
	LWLockRelease(&inbox->lock);
	return nothing;
}

const LeaseRecord *
lease_inbox_next(const char *buffer, uint32 used, uint32 *position)
{
	const LeaseRecord *record = (const LeaseRecord *) (buffer + *position);

	if (*position >= used)
		return NULL;
	*position += record_size(record->group_len);
	return record;
}
