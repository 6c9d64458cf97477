/*
 * worklist.c
 *		Which partitions are worth a look, per queue and consumer group.
 *
 * An item is one partition on the list of one group.  It is ready, in the order
 * in which the items became so, or parked until a time: the end of a lease, the
 * maturity of a delay, a while for a row that another session holds.
 *
 * A pop takes an item off the list before it looks, and what happens to the
 * partition meanwhile enters it again.  News are entered by commits that are
 * visible already, so that whoever takes an item sees what it stands for.
 *
 * The number of items is limited, and a group has at most a share of them.
 * What finds no room is missing until a walk finds it; whoever meets an empty
 * list with something missing goes on with the walk, or searches the tables.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "gucs.h"
#include "shmem.h"
#include "worklist.h"

/* Groups that have not popped for so long lose their list. */
#define IDLE_LIMIT_US (600 * USECS_PER_SEC)

/* What one group can have of all items, so that a slow one does not take them all. */
#define GROUP_SHARE (queen_worklist_size / 4)

#define MAX_GROUPS (2 * queen_max_tracked_queues)

typedef struct QueueList
{
	QueueKey key;	   /* hash key */
	dlist_head groups; /* never empty */
} QueueList;

typedef struct GroupListKey
{
	QueueKey queue;
	uint64 group;
} GroupListKey;

typedef struct GroupList
{
	GroupListKey key; /* hash key */
	dlist_node node;  /* of the queue's groups */
	TimestampTz last_pop;
	int items;
	dlist_head ready; /* longest first */
	pairingheap parked;
	Walk walk;
	bool complete; /* nothing is missing */
	bool lost;	   /* something found no room since the walk began */
} GroupList;

typedef struct ItemKey
{
	GroupList *group;
	pg_uuid_t partition;
} ItemKey;

typedef struct Item
{
	ItemKey key; /* hash key */
	bool parked;
	bool leased;  /* parked by the pop that took the lease, until its end */
	bool written; /* news came while it was leased */
	TimestampTz until;
	union
	{
		dlist_node ready;
		pairingheap_node parked;
	} link;
} Item;

typedef struct WorkShared
{
	LWLock lock; /* protects everything */
} WorkShared;

static WorkShared *shared;
static HTAB *queues;
static HTAB *groups;
static HTAB *items;

static int
compare_until(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(Item, link.parked, a)->until;
	TimestampTz right = pairingheap_const_container(Item, link.parked, b)->until;

	return left < right ? 1 : left > right ? -1 : 0;
}

uint64
worklist_group(const char *name, Size len)
{
	uint64 group = hash_bytes_extended((const unsigned char *) name, len, 0);

	return group == 0 ? 1 : group;
}

static GroupList *
find_group(const pg_uuid_t *queue, uint64 group)
{
	GroupListKey key;

	memset(&key, 0, sizeof(key));
	key.queue = queue_key(queue);
	key.group = group;
	return hash_search(groups, &key, HASH_FIND, NULL);
}

/* The next four leave the walk and what is missing alone. */

static Item *
find_item(GroupList *group, const pg_uuid_t *partition)
{
	ItemKey key = {group, *partition};

	return hash_search(items, &key, HASH_FIND, NULL);
}

static void
unlink_item(Item *item)
{
	if (item->parked)
		pairingheap_remove(&item->key.group->parked, &item->link.parked);
	else
		dlist_delete(&item->link.ready);
}

static void
remove_item(Item *item)
{
	GroupList *group = item->key.group;

	unlink_item(item);
	group->items--;
	hash_search(items, &item->key, HASH_REMOVE, NULL);
}

static bool
has_room(const GroupList *group)
{
	return group->items < GROUP_SHARE && hash_get_num_entries(items) < queen_worklist_size;
}

/* An item that is linked nowhere yet; NULL when there is no room. */
static Item *
add_item(GroupList *group, const pg_uuid_t *partition)
{
	ItemKey key = {group, *partition};
	Item *item = NULL;

	if (has_room(group))
		item = hash_search(items, &key, HASH_ENTER_NULL, NULL);
	if (item != NULL)
		group->items++;
	return item;
}

static void
link_ready(Item *item)
{
	item->parked = false;
	dlist_push_tail(&item->key.group->ready, &item->link.ready);
}

static void
link_parked(Item *item, TimestampTz until, bool leased)
{
	item->parked = true;
	item->leased = leased;
	item->written = false;
	item->until = until;
	pairingheap_add(&item->key.group->parked, &item->link.parked);
}

static void
drop_group(GroupList *group)
{
	QueueKey key = group->key.queue;
	QueueList *queue = hash_search(queues, &key, HASH_FIND, NULL);

	while (!dlist_is_empty(&group->ready))
		remove_item(dlist_head_element(Item, link.ready, &group->ready));
	while (!pairingheap_is_empty(&group->parked))
		remove_item(pairingheap_container(Item, link.parked, pairingheap_first(&group->parked)));
	dlist_delete(&group->node);
	hash_search(groups, &group->key, HASH_REMOVE, NULL);
	if (dlist_is_empty(&queue->groups))
		hash_search(queues, &key, HASH_REMOVE, NULL);
}

static bool
is_idle(const GroupList *group, TimestampTz now)
{
	return group->last_pop + IDLE_LIMIT_US < now;
}

static void
drop_idle_groups(TimestampTz now)
{
	HASH_SEQ_STATUS scan;
	GroupList *group;

	hash_seq_init(&scan, groups);
	while ((group = hash_seq_search(&scan)) != NULL)
		if (is_idle(group, now))
			drop_group(group);
}

/* Begins the list of a group; NULL when there is no room. */
static GroupList *
add_group(const pg_uuid_t *queue_id, uint64 number, TimestampTz now)
{
	GroupListKey key;
	QueueList *queue;
	GroupList *group = NULL;
	bool found;

	memset(&key, 0, sizeof(key));
	key.queue = queue_key(queue_id);
	key.group = number;
	if (hash_get_num_entries(groups) >= MAX_GROUPS)
		drop_idle_groups(now);
	if (hash_get_num_entries(groups) >= MAX_GROUPS)
		return NULL;
	queue = hash_search(queues, &key.queue, HASH_ENTER_NULL, &found);
	if (queue != NULL && !found)
		dlist_init(&queue->groups);
	if (queue != NULL)
		group = hash_search(groups, &key, HASH_ENTER_NULL, NULL);
	if (group == NULL)
	{
		if (queue != NULL && !found)
			hash_search(queues, &key.queue, HASH_REMOVE, NULL);
		return NULL;
	}
	dlist_push_tail(&queue->groups, &group->node);
	group->items = 0;
	dlist_init(&group->ready);
	group->parked = (pairingheap){.ph_compare = compare_until};
	group->walk = (Walk){.running = false};
	group->complete = false;
	group->lost = false;
	return group;
}

/* Makes a partition ready. */
static void
enter_ready(GroupList *group, const pg_uuid_t *partition)
{
	Item *item = find_item(group, partition);

	if (item != NULL && !item->parked)
		return;
	if (item != NULL)
		unlink_item(item);
	else
		item = add_item(group, partition);
	if (item != NULL)
		link_ready(item);
	else
	{
		group->complete = false;
		group->lost = true;
	}
}

/* Parks a partition, unless the list says that it is worth a look before; false: no room. */
static bool
enter_parked(GroupList *group, const pg_uuid_t *partition, TimestampTz until, bool leased)
{
	Item *item = find_item(group, partition);

	if (item != NULL && (!item->parked || item->until <= until))
		return true;
	if (item != NULL)
		unlink_item(item);
	else
		item = add_item(group, partition);
	if (item != NULL)
		link_parked(item, until, leased);
	return item != NULL;
}

void
worklist_written(const pg_uuid_t *queue_id, const pg_uuid_t *partition,
				 bool (*has_seen)(const void *arg, uint64 group), const void *arg)
{
	QueueKey key = queue_key(queue_id);
	TimestampTz now = GetCurrentTimestamp();
	QueueList *queue;
	dlist_mutable_iter iter;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	queue = hash_search(queues, &key, HASH_FIND, NULL);
	if (queue != NULL)
		dlist_foreach_modify(iter, &queue->groups)
		{
			GroupList *group = dlist_container(GroupList, node, iter.cur);
			Item *item = find_item(group, partition);

			if (is_idle(group, now))
				drop_group(group);
			else if (has_seen(arg, group->key.group))
				continue;
			else if (item != NULL && item->parked && item->leased)
				item->written = true;
			else
				enter_ready(group, partition);
		}
	LWLockRelease(&shared->lock);
}

void
worklist_ready(const pg_uuid_t *queue, uint64 number, const pg_uuid_t *partition)
{
	GroupList *group;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group != NULL)
		enter_ready(group, partition);
	LWLockRelease(&shared->lock);
}

void
worklist_park(const pg_uuid_t *queue, uint64 number, const pg_uuid_t *partition, TimestampTz until,
			  bool lease)
{
	GroupList *group;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group != NULL && !enter_parked(group, partition, until, lease))
	{
		group->complete = false;
		group->lost = true;
	}
	LWLockRelease(&shared->lock);
}

/*
 * Whoever ended the lease looked for more behind it, but may not have seen what
 * was written since.  A pop that came for that has met the lease, and has parked
 * the item or left it to whoever took the lease.
 */
bool
worklist_lease_done(const pg_uuid_t *queue, uint64 number, const pg_uuid_t *partition)
{
	GroupList *group;
	Item *item = NULL;
	bool more = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group != NULL)
		item = find_item(group, partition);
	if (item != NULL && item->parked)
	{
		more = item->written || !item->leased;
		if (more)
			enter_ready(group, partition);
		else
			remove_item(item);
	}
	LWLockRelease(&shared->lock);
	return more;
}

void
worklist_doubt(const pg_uuid_t *queue_id)
{
	QueueKey key = queue_key(queue_id);
	QueueList *queue;
	dlist_iter iter;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	queue = hash_search(queues, &key, HASH_FIND, NULL);
	if (queue != NULL)
		dlist_foreach(iter, &queue->groups)
		{
			GroupList *group = dlist_container(GroupList, node, iter.cur);

			group->complete = false;
			group->walk.running = false;
		}
	LWLockRelease(&shared->lock);
}

void
worklist_forget_database(Oid database)
{
	HASH_SEQ_STATUS scan;
	GroupList *group;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, groups);
	while ((group = hash_seq_search(&scan)) != NULL)
		if (group->key.queue.database == database)
			drop_group(group);
	LWLockRelease(&shared->lock);
}

/* Parked items whose time has come become ready. */
static void
ripen(GroupList *group, TimestampTz now)
{
	while (!pairingheap_is_empty(&group->parked))
	{
		Item *item = pairingheap_container(Item, link.parked, pairingheap_first(&group->parked));

		if (item->until >= now)
			break;
		unlink_item(item);
		link_ready(item);
	}
}

WorkTaken
worklist_take(const pg_uuid_t *queue, uint64 number, pg_uuid_t *partition)
{
	TimestampTz now = GetCurrentTimestamp();
	WorkTaken taken = WORK_NONE;
	GroupList *group;

	if (queen_shared == NULL || !queen_use_worklists)
		return WORK_NO_LIST;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group == NULL)
		group = add_group(queue, number, now);
	if (group != NULL)
	{
		group->last_pop = now;
		ripen(group, now);
	}
	if (group != NULL && !dlist_is_empty(&group->ready))
	{
		Item *item = dlist_head_element(Item, link.ready, &group->ready);

		*partition = item->key.partition;
		remove_item(item);
		taken = WORK_TAKEN;
	}
	else if (group == NULL || (!group->complete && !has_room(group)))
		taken = WORK_NO_LIST; /* or so much is parked that the walk cannot go on */
	LWLockRelease(&shared->lock);
	return taken;
}

TimestampTz
worklist_next(const pg_uuid_t *queue, uint64 number)
{
	TimestampTz next = DT_NOEND;
	GroupList *group;

	LWLockAcquire(&shared->lock, LW_SHARED);
	group = find_group(queue, number);
	if (group != NULL && !dlist_is_empty(&group->ready))
		next = GetCurrentTimestamp();
	else if (group != NULL && !pairingheap_is_empty(&group->parked))
		next = pairingheap_container(Item, link.parked, pairingheap_first(&group->parked))->until;
	LWLockRelease(&shared->lock);
	return next;
}

/* Whether a walk should begin now. */
static bool
walk_is_due(const GroupList *group, TimestampTz now)
{
	TimestampTz next = group->walk.ended + queen_worklist_check_interval * USECS_PER_SEC;

	return !group->complete || group->walk.ended > now || next < now;
}

bool
worklist_walk(const pg_uuid_t *queue, uint64 number, Walk *walk, bool *complete)
{
	TimestampTz now = GetCurrentTimestamp();
	GroupList *group;
	bool due = false;

	*complete = true;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group != NULL)
	{
		if (!group->walk.running && walk_is_due(group, now))
		{
			group->walk = (Walk){.number = group->walk.number + 1,
								 .running = true,
								 .began = DT_NOEND,
								 .position = DT_NOBEGIN,
								 .ended = group->walk.ended};
			group->lost = false;
		}
		*walk = group->walk;
		*complete = group->complete;
		due = walk->running && has_room(group);
	}
	LWLockRelease(&shared->lock);
	return due;
}

bool
worklist_met(const pg_uuid_t *queue, uint64 number, const pg_uuid_t *partition, TimestampTz until)
{
	GroupList *group;
	bool room = true;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group != NULL)
		room = enter_parked(group, partition, until, false);
	LWLockRelease(&shared->lock);
	return room;
}

bool
worklist_walked(const pg_uuid_t *queue, uint64 number, Walk *walk, bool end)
{
	GroupList *group;
	bool ended = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	group = find_group(queue, number);
	if (group != NULL && group->walk.running && group->walk.number == walk->number)
	{
		Walk *common = &group->walk;

		common->met |= walk->met;
		common->began = Min(common->began, walk->began);
		common->position = Max(common->position, walk->position);
		if (end)
		{
			common->running = false;
			common->ended = GetCurrentTimestamp();
			group->complete = !group->lost;
			ended = true;
		}
		*walk = *common;
	}
	LWLockRelease(&shared->lock);
	return ended;
}

Size
worklist_shmem_size(void)
{
	Size size = MAXALIGN(sizeof(WorkShared));

	size = add_size(size, hash_estimate_size(queen_max_tracked_queues, sizeof(QueueList)));
	size = add_size(size, hash_estimate_size(MAX_GROUPS, sizeof(GroupList)));
	return add_size(size, hash_estimate_size(queen_worklist_size, sizeof(Item)));
}

static HTAB *
start_table(const char *name, long size, Size key, Size entry)
{
	HASHCTL info = {.keysize = key, .entrysize = entry};

	return ShmemInitHash(name, size, size, &info, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

void
worklist_startup(int tranche)
{
	bool found;

	shared = ShmemInitStruct("queen work lists", sizeof(WorkShared), &found);
	if (!found)
		LWLockInitialize(&shared->lock, tranche);
	queues = start_table("queen queues with work lists", queen_max_tracked_queues, sizeof(QueueKey),
						 sizeof(QueueList));
	groups = start_table("queen work lists of groups", MAX_GROUPS, sizeof(GroupListKey),
						 sizeof(GroupList));
	items = start_table("queen work items", queen_worklist_size, sizeof(ItemKey), sizeof(Item));
}
