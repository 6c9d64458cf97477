/*
 * pending.c
 *		What a transaction has to report once it commits.
 *
 * The procedures call the functions in here while they work.  At commit the
 * counters go to shared memory, the queues with news to the wake worker, the
 * new leases to the lease expiry worker, and what work_notes.c keeps to the
 * work lists.  What a transaction or a savepoint
 * rolls back is dropped.
 *
 * All of it lives in the transaction's memory context, so that an abort has
 * nothing to free.  Nothing that runs at commit may fail.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "lib/ilist.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "function.h"
#include "gucs.h"
#include "lease_inbox.h"
#include "lease_map.h"
#include "pending.h"
#include "shmem.h"
#include "stats.h"
#include "wake.h"
#include "work_notes.h"
#include "worklist.h"

QUEEN_FUNCTION(stat_ack);
QUEEN_FUNCTION(stat_lease);
QUEEN_FUNCTION(stat_lease_done);
QUEEN_FUNCTION(stat_retention);
QUEEN_FUNCTION(stat_expired);

typedef struct PendingKey
{
	pg_uuid_t queue;
	int level; /* of the savepoint */
} PendingKey;

typedef struct PendingQueue
{
	PendingKey key; /* hash key */
	bool news;
	int64 counters[QUEUE_COUNTERS];
	int64 max_pop_lag;
} PendingQueue;

typedef struct PendingLease
{
	slist_node node;
	int level;
	pg_uuid_t partition_id;
	pg_uuid_t worker_id;
	TimestampTz expires_at;
	text *consumer_group;
} PendingLease;

static HTAB *pending_queues; /* NULL: none */
static slist_head pending_leases = SLIST_STATIC_INIT(pending_leases);

static void
flush(void)
{
	HASH_SEQ_STATUS scan;
	PendingQueue *queue;
	slist_iter iter;

	work_notes_finish(true); /* first: whoever is woken looks there */
	hash_seq_init(&scan, pending_queues);
	while ((queue = hash_seq_search(&scan)) != NULL)
	{
		stats_add(&queue->key.queue, queue->counters, queue->max_pop_lag);
		if (queue->news)
			wake_list_add(&queue->key.queue, queen_wake_origin);
	}
	slist_foreach(iter, &pending_leases)
	{
		PendingLease *lease = slist_container(PendingLease, node, iter.cur);

		lease_inbox_add(&lease->partition_id, VARDATA_ANY(lease->consumer_group),
						VARSIZE_ANY_EXHDR(lease->consumer_group), lease->expires_at);
		lease_map_add(&lease->worker_id, &lease->partition_id, lease->expires_at);
	}
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	if (pending_queues == NULL)
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			flush();
			/* FALLTHROUGH */
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			work_notes_finish(false);
			pending_queues = NULL;
			slist_init(&pending_leases);
			break;
		default:
			break;
	}
}

static PendingQueue *
pending_queue(const pg_uuid_t *queue, int level)
{
	PendingKey key;
	PendingQueue *pending;
	bool found;

	memset(&key, 0, sizeof(key));
	key.queue = *queue;
	key.level = level;
	pending = hash_search(pending_queues, &key, HASH_ENTER, &found);
	if (!found)
	{
		pending->news = false;
		memset(pending->counters, 0, sizeof(pending->counters));
		pending->max_pop_lag = 0;
	}
	return pending;
}

/* Gives to the parent what a released savepoint has counted. */
static void
keep_counters(int level)
{
	HASH_SEQ_STATUS scan;
	PendingQueue *queue;

	hash_seq_init(&scan, pending_queues);
	while ((queue = hash_seq_search(&scan)) != NULL)
		if (queue->key.level == level)
		{
			PendingQueue ended = *queue;
			PendingQueue *parent;

			hash_search(pending_queues, &ended.key, HASH_REMOVE, NULL);
			parent = pending_queue(&ended.key.queue, level - 1);
			parent->news |= ended.news;
			for (int i = 0; i < QUEUE_COUNTERS; i++)
				parent->counters[i] += ended.counters[i];
			parent->max_pop_lag = Max(parent->max_pop_lag, ended.max_pop_lag);
		}
}

static void
drop_counters(int level)
{
	HASH_SEQ_STATUS scan;
	PendingQueue *queue;

	hash_seq_init(&scan, pending_queues);
	while ((queue = hash_seq_search(&scan)) != NULL)
		if (queue->key.level >= level)
			hash_search(pending_queues, &queue->key, HASH_REMOVE, NULL);
}

static void
at_savepoint_end(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int level = GetCurrentTransactionNestLevel();
	slist_mutable_iter iter;

	if (pending_queues == NULL ||
		(event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB))
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		keep_counters(level);
		work_notes_keep(level);
	}
	else
	{
		drop_counters(level);
		work_notes_drop(level);
	}
	slist_foreach_modify(iter, &pending_leases)
	{
		PendingLease *lease = slist_container(PendingLease, node, iter.cur);

		if (lease->level < level)
			break; /* newest first, so levels descend */
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			lease->level = level - 1;
		else
			slist_delete_current(&iter);
	}
}

void
pending_start(void)
{
	static bool registered = false;
	HASHCTL info = {0};

	if (pending_queues != NULL)
		return;
	if (!registered)
	{
		RegisterXactCallback(at_transaction_end, NULL);
		RegisterSubXactCallback(at_savepoint_end, NULL);
		registered = true;
	}
	info.keysize = sizeof(PendingKey);
	info.entrysize = sizeof(PendingQueue);
	info.hcxt = TopTransactionContext;
	pending_queues =
		hash_create("queen pending counters", 16, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* What the current transaction has counted for the queue of the first argument. */
static PendingQueue *
count(PG_FUNCTION_ARGS)
{
	pending_start();
	return pending_queue(PG_GETARG_UUID_P(0), GetCurrentTransactionNestLevel());
}

void
pending_count(const pg_uuid_t *queue, int counter, int64 n)
{
	if (queen_shared == NULL || n == 0)
		return;
	pending_start();
	pending_queue(queue, GetCurrentTransactionNestLevel())->counters[counter] += n;
}

void
pending_lease_done(const pg_uuid_t *queue, const pg_uuid_t *partition, const char *group,
				   Size group_len, bool more)
{
	if (queen_shared == NULL)
		return;
	pending_start();
	if (more)
		pending_queue(queue, GetCurrentTransactionNestLevel())->news = true;
	note_lease_done(queue, worklist_group(group, group_len), partition, more);
}

void
pending_push(const pg_uuid_t *queue, const pg_uuid_t *partition, int64 messages, int64 raw_bytes,
			 int64 bytes)
{
	PendingQueue *pending;

	if (queen_shared == NULL)
		return;
	pending_start();
	pending = pending_queue(queue, GetCurrentTransactionNestLevel());
	pending->counters[COUNT_PUSHES]++;
	pending->counters[COUNT_PUSH_MESSAGES] += messages;
	pending->counters[COUNT_PUSH_RAW_BYTES] += raw_bytes;
	pending->counters[COUNT_PUSH_BYTES] += bytes;
	pending->news = true;
	note_written(queue, partition);
}

void
pending_duplicates(const pg_uuid_t *queue, int64 messages)
{
	if (queen_shared == NULL)
		return;
	pending_start();
	pending_queue(queue, GetCurrentTransactionNestLevel())->counters[COUNT_DUPLICATES] += messages;
}

void
pending_pop(const pg_uuid_t *queue, const PopCount *pop)
{
	PendingQueue *pending;

	if (queen_shared == NULL)
		return;
	pending_start();
	pending = pending_queue(queue, GetCurrentTransactionNestLevel());
	pending->counters[COUNT_POPS]++;
	pending->counters[COUNT_POP_MESSAGES] += pop->messages;
	pending->counters[COUNT_LEASES] += pop->leases;
	pending->counters[COUNT_EMPTY_POPS] += pop->messages == 0 ? 1 : 0;
	pending->counters[COUNT_ACKS_COMPLETED] += pop->passed;
	pending->counters[COUNT_POP_LAG] += pop->lag;
	pending->max_pop_lag = Max(pending->max_pop_lag, pop->longest);
}

/*
 * stat_ack(queue_id uuid, completed bigint, failed bigint, retried bigint,
 *			dead_lettered bigint, dropped bigint)
 */
Datum
stat_ack(PG_FUNCTION_ARGS)
{
	PendingQueue *queue;

	if (queen_shared == NULL)
		PG_RETURN_VOID();
	queue = count(fcinfo);
	for (int i = 1; i < PG_NARGS(); i++)
		queue->counters[COUNT_ACKS_COMPLETED + i - 1] += PG_GETARG_INT64(i);
	PG_RETURN_VOID();
}

void
pending_lease(const pg_uuid_t *partition_id, const text *consumer_group, TimestampTz expires_at,
			  const pg_uuid_t *worker_id)
{
	MemoryContext caller;
	PendingLease *lease;

	if (queen_shared == NULL)
		return;
	pending_start();
	caller = MemoryContextSwitchTo(TopTransactionContext);
	lease = palloc(sizeof(PendingLease));
	lease->level = GetCurrentTransactionNestLevel();
	lease->partition_id = *partition_id;
	lease->worker_id = *worker_id;
	lease->consumer_group = DatumGetTextPCopy(PointerGetDatum(consumer_group));
	lease->expires_at = expires_at;
	slist_push_head(&pending_leases, &lease->node);
	MemoryContextSwitchTo(caller);
}

/*
 * stat_lease(partition_id uuid, consumer_group text, expires_at timestamptz, worker uuid)
 */
Datum
stat_lease(PG_FUNCTION_ARGS)
{
	pending_lease(PG_GETARG_UUID_P(0), PG_GETARG_TEXT_PP(1), PG_GETARG_TIMESTAMPTZ(2),
				  PG_GETARG_UUID_P(3));
	PG_RETURN_VOID();
}

/*
 * stat_lease_done(queue_id uuid, partition_id uuid, consumer_group text, more bool)
 */
Datum
stat_lease_done(PG_FUNCTION_ARGS)
{
	text *name = PG_GETARG_TEXT_PP(2);

	pending_lease_done(PG_GETARG_UUID_P(0), PG_GETARG_UUID_P(1), VARDATA_ANY(name),
					   VARSIZE_ANY_EXHDR(name), PG_GETARG_BOOL(3));
	PG_RETURN_VOID();
}

/*
 * stat_retention(queue_id uuid, messages bigint)
 */
Datum
stat_retention(PG_FUNCTION_ARGS)
{
	if (queen_shared != NULL)
		count(fcinfo)->counters[COUNT_RETENTION_MESSAGES] += PG_GETARG_INT64(1);
	PG_RETURN_VOID();
}

/*
 * stat_expired(queue_id uuid, leases int)
 */
Datum
stat_expired(PG_FUNCTION_ARGS)
{
	if (queen_shared != NULL)
	{
		PendingQueue *queue = count(fcinfo);

		queue->counters[COUNT_LEASES_EXPIRED] += PG_GETARG_INT32(1);
		queue->news = true;
	}
	PG_RETURN_VOID();
}
