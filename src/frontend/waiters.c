/*
 * waiters.c
 *		Parked pops, and what wakes them.
 *
 * Two levels: a place is a queue and a partition, or a queue and "any"; in a
 * place there is one group per consumer group.  A push looks up two places.
 * A notification from the database names a queue by its id; the places that
 * are known to belong to it are listed under that id.
 */
#include "waiters.h"

#include "clock.h"
#include "conf.h"
#include "pop.h"
#include "worker.h"

#include <event2/event_struct.h>
#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

#define DISCOVERY_PAUSE_MS 20

struct WaitQueue;

typedef struct WaitPlace
{
	UT_hash_handle hh;
	struct WaitPlace *prev, *next; /* under its queue's id, or among the discoveries */
	struct WaitQueue *queue;	   /* NULL while the id is not known */
	WaitGroup *groups;
	int parked;
	bool discovery;
	size_t queue_len;
	size_t key_len;
	char key[]; /* tenant, queue, 0x1f, 'p' and partition or 'a'; namespace, 0x1f, 'd' and task */
} WaitPlace;

typedef struct WaitQueue
{
	UT_hash_handle hh;
	Uuid id;
	WaitPlace *places;
} WaitQueue;

struct WaitGroup
{
	WaitGroup *prev, *next; /* in its place */
	Waiters *waiters;
	WaitPlace *place;
	struct Pop *parked;
	int members; /* pops that joined */
	uint64_t wakes;
	int misses;		  /* looks in vain since the last wake-up */
	int64_t woken_at; /* of a discovery, monotonic milliseconds */
	bool news;		  /* it is to look again after the pause */
	struct event timer;
	size_t name_len;
	char name[];
};

struct Waiters
{
	struct Worker *worker;
	WaitPlace *places; /* hash table by key */
	Buf key;		   /* of the one looked up last */
	WaitQueue *queues; /* hash table by id */
	WaitPlace *discoveries;
	int parked;
};

Waiters *
waiters_new(struct Worker *worker)
{
	Waiters *waiters = calloc(1, sizeof(*waiters));

	waiters->worker = worker;
	return waiters;
}

void
waiters_free(Waiters *waiters)
{
	buf_free(&waiters->key);
	free(waiters);
}

int
waiters_parked(const Waiters *waiters)
{
	return waiters->parked;
}

/* --- places and groups --------------------------------------------------- */

static WaitPlace *
find_place(Waiters *waiters, const Uuid *tenant, Span queue, char kind, Span detail, bool create)
{
	Buf *key = &waiters->key;
	WaitPlace *place;

	buf_reset(key);
	buf_append(key, tenant->bytes, 16);
	buf_append(key, queue.ptr, queue.len);
	buf_append_char(key, '\x1f');
	buf_append_char(key, kind);
	buf_append(key, detail.ptr, detail.len);
	if (key->failed)
		abort();
	HASH_FIND(hh, waiters->places, key->data, key->len, place);
	if (place || !create)
		return place;
	place = calloc(1, sizeof(*place) + key->len);
	if (place == NULL)
		abort();
	memcpy(place->key, key->data, key->len);
	place->discovery = kind == 'd';
	place->queue_len = queue.len;
	place->key_len = key->len;
	HASH_ADD_KEYPTR(hh, waiters->places, place->key, place->key_len, place);
	if (place->discovery)
		DL_APPEND(waiters->discoveries, place);
	return place;
}

/* The place of a partition, or (ptr NULL) of any partition of the queue. */
static WaitPlace *
queue_place(Waiters *waiters, const Uuid *tenant, Span queue, Span partition, bool create)
{
	return find_place(waiters, tenant, queue, partition.ptr ? 'p' : 'a', partition, create);
}

static WaitGroup *
find_group(WaitPlace *place, Span name)
{
	WaitGroup *group;

	DL_FOREACH (place->groups, group)
	{
		if (span_equals((Span){group->name, group->name_len}, name))
			return group;
	}
	return NULL;
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	WaitGroup *group = arg;

	(void) fd;
	(void) what;
	if (group->news)
	{
		waiters_wake(group);
		return;
	}
	group->misses++;
	if (group->parked)
		pop_look_again(group->parked, true);
}

/* Takes the place out of the list of its queue. */
static void
place_forget_queue(Waiters *waiters, WaitPlace *place)
{
	WaitQueue *queue = place->queue;

	if (queue == NULL)
		return;
	DL_DELETE(queue->places, place);
	place->queue = NULL;
	if (queue->places == NULL)
	{
		HASH_DEL(waiters->queues, queue);
		free(queue);
	}
}

void
waiters_know_queue(WaitGroup *group, const Uuid *queue_id)
{
	Waiters *waiters = group->waiters;
	WaitPlace *place = group->place;
	WaitQueue *queue;

	if (place->queue && memcmp(&place->queue->id, queue_id, sizeof(Uuid)) == 0)
		return;
	place_forget_queue(waiters, place);
	HASH_FIND(hh, waiters->queues, queue_id, sizeof(Uuid), queue);
	if (queue == NULL)
	{
		queue = calloc(1, sizeof(*queue));
		if (queue == NULL)
			abort();
		queue->id = *queue_id;
		HASH_ADD(hh, waiters->queues, id, sizeof(Uuid), queue);
	}
	place->queue = queue;
	DL_APPEND(queue->places, place);
}

static WaitGroup *
join_place(Waiters *waiters, WaitPlace *place, Span name)
{
	WaitGroup *group = find_group(place, name);

	if (group == NULL)
	{
		group = calloc(1, sizeof(*group) + name.len);
		if (group == NULL)
			abort();
		group->waiters = waiters;
		group->place = place;
		group->name_len = name.len;
		memcpy(group->name, name.ptr, name.len);
		evtimer_assign(&group->timer, waiters->worker->base, on_timer, group);
		DL_APPEND(place->groups, group);
	}
	group->members++;
	metrics_add(&waiters->worker->metrics, METRIC_WAITING, 1);
	return group;
}

WaitGroup *
waiters_join(Waiters *waiters, const Uuid *tenant, Span queue, Span partition, Span name)
{
	return join_place(waiters, queue_place(waiters, tenant, queue, partition, true), name);
}

WaitGroup *
waiters_join_discovery(Waiters *waiters, const Uuid *tenant, Span namespace, Span task, Span name)
{
	return join_place(waiters, find_place(waiters, tenant, namespace, 'd', task, true), name);
}

void
waiters_leave(WaitGroup *group)
{
	WaitPlace *place = group->place;

	metrics_add(&group->waiters->worker->metrics, METRIC_WAITING, (uint64_t) -1);
	if (--group->members > 0)
		return;
	event_del(&group->timer);
	DL_DELETE(place->groups, group);
	if (place->groups == NULL)
	{
		place_forget_queue(group->waiters, place);
		if (place->discovery)
			DL_DELETE(group->waiters->discoveries, place);
		HASH_DEL(group->waiters->places, place);
		free(place);
	}
	free(group);
}

uint64_t
waiters_wakes(const WaitGroup *group)
{
	return group->wakes;
}

/* --- parking ------------------------------------------------------------- */

/* The first looks come at the initial interval, later ones ever more rarely. */
static int64_t
fallback_interval(const WaitGroup *group)
{
	const struct Conf *conf = group->waiters->worker->conf;
	int doublings = group->misses < 3 ? 0 : group->misses - 2;
	int64_t interval = conf->poll_initial_ms << (doublings < 16 ? doublings : 16);

	return interval < conf->poll_max_ms ? interval : conf->poll_max_ms;
}

static int64_t
retry_floor(const WaitGroup *group)
{
	int64_t floor = (int64_t) 5 << (group->misses < 10 ? group->misses : 10);
	int64_t interval = fallback_interval(group);

	return floor < interval ? floor : interval;
}

static void
start_timer(WaitGroup *group, int64_t retry_ms)
{
	int64_t delay = fallback_interval(group);
	struct timeval tv;

	/*
	 * What matures is looked at when it does.  The time was compared with our
	 * clock, though, and the database's may be behind: looks in vain slow down.
	 */
	if (retry_ms == 0)
		delay = 0;
	else if (retry_ms > 0 && retry_ms < delay)
		delay = retry_ms > retry_floor(group) ? retry_ms : retry_floor(group);
	if (group->news && delay > DISCOVERY_PAUSE_MS)
		delay = DISCOVERY_PAUSE_MS;
	tv.tv_sec = delay / 1000;
	tv.tv_usec = (delay % 1000) * 1000 + 1;
	event_add(&group->timer, &tv);
}

void
waiters_park(WaitGroup *group, struct Pop *pop, int64_t retry_ms, bool in_front)
{
	if (in_front)
		DL_PREPEND(group->parked, pop);
	else
		DL_APPEND(group->parked, pop);
	group->waiters->parked++;
	group->place->parked++;
	metrics_add(&group->waiters->worker->metrics, METRIC_PARKED, 1);
	if (in_front || !event_pending(&group->timer, EV_TIMEOUT, NULL))
		start_timer(group, retry_ms);
}

void
waiters_unpark(WaitGroup *group, struct Pop *pop)
{
	DL_DELETE(group->parked, pop);
	group->waiters->parked--;
	group->place->parked--;
	metrics_add(&group->waiters->worker->metrics, METRIC_PARKED, (uint64_t) -1);
	if (group->parked == NULL)
		event_del(&group->timer);
	else if (!event_pending(&group->timer, EV_TIMEOUT, NULL))
		start_timer(group, -1);
}

/* --- waking -------------------------------------------------------------- */

static void
count_wake(WaitGroup *group)
{
	group->wakes++;
	group->misses = 0;
	group->woken_at = clock_ms();
	group->news = false;
}

void
waiters_wake(WaitGroup *group)
{
	count_wake(group);
	if (group->parked)
		pop_look_again(group->parked, false);
}

/* Wakes the group, unless that was done a moment ago: then later. */
static void
wake_discovery(WaitGroup *group)
{
	if (clock_ms() >= group->woken_at + DISCOVERY_PAUSE_MS)
		waiters_wake(group);
	else if (!group->news)
	{
		group->news = true;
		if (group->parked)
			start_timer(group, -1);
	}
}

static void
wake_place(WaitPlace *place, struct PopBundle *looked, Span partition)
{
	WaitGroup *group, *next;

	if (place == NULL)
		return;
	DL_FOREACH_SAFE (place->groups, group, next)
	{
		if (place->discovery)
			wake_discovery(group);
		else if (looked && pops_have_looked(looked, group, partition))
			count_wake(group);
		else
			waiters_wake(group);
	}
}

/* The discoveries of a tenant, or (NULL) of all of them. */
static void
wake_discoveries(Waiters *waiters, const Uuid *tenant)
{
	WaitPlace *place, *next;

	DL_FOREACH_SAFE (waiters->discoveries, place, next)
	{
		if (tenant == NULL || memcmp(place->key, tenant->bytes, sizeof(tenant->bytes)) == 0)
			wake_place(place, NULL, (Span){NULL, 0});
	}
}

void
waiters_wake_partition(Waiters *waiters, struct PopBundle *looked, const Uuid *tenant, Span queue,
					   Span partition)
{
	wake_place(queue_place(waiters, tenant, queue, (Span){NULL, 0}, false), looked, partition);
	wake_place(queue_place(waiters, tenant, queue, partition, false), looked, partition);
	wake_discoveries(waiters, tenant);
}

static void
next_of_place(WaitPlace *place, void (*fn)(void *ctx, struct Pop *pop), void *ctx)
{
	WaitGroup *group;

	if (place == NULL || place->parked == 0)
		return;
	DL_FOREACH (place->groups, group)
	{
		if (group->parked)
			fn(ctx, group->parked);
	}
}

void
waiters_next(Waiters *waiters, const Uuid *tenant, Span queue, Span partition,
			 void (*fn)(void *ctx, struct Pop *pop), void *ctx)
{
	next_of_place(queue_place(waiters, tenant, queue, (Span){NULL, 0}, false), fn, ctx);
	next_of_place(queue_place(waiters, tenant, queue, partition, false), fn, ctx);
}

void
waiters_wake_one_group(Waiters *waiters, const Uuid *tenant, Span queue, Span partition, Span name)
{
	WaitPlace *places[2] = {queue_place(waiters, tenant, queue, (Span){NULL, 0}, false),
							queue_place(waiters, tenant, queue, partition, false)};

	for (int i = 0; i < 2; i++)
	{
		WaitGroup *group = places[i] ? find_group(places[i], name) : NULL;

		if (group)
			waiters_wake(group);
	}
	wake_discoveries(waiters, tenant);
}

void
waiters_wake_queue(Waiters *waiters, const Uuid *queue_id)
{
	WaitQueue *queue;
	WaitPlace *place, *next;

	if (queue_id == NULL)
	{
		HASH_ITER (hh, waiters->places, place, next)
		{
			wake_place(place, NULL, (Span){NULL, 0});
		}
		return;
	}
	wake_discoveries(waiters, NULL);
	HASH_FIND(hh, waiters->queues, queue_id, sizeof(Uuid), queue);
	if (queue == NULL)
		return;
	DL_FOREACH (queue->places, place)
	{
		wake_place(place, NULL, (Span){NULL, 0});
	}
}

void
waiters_each(Waiters *waiters, void (*fn)(struct Pop *pop))
{
	WaitPlace *place, *next_place;

	HASH_ITER (hh, waiters->places, place, next_place)
	{
		WaitGroup *group, *next_group;

		DL_FOREACH_SAFE (place->groups, group, next_group)
		{
			struct Pop *pop, *next_pop;

			DL_FOREACH_SAFE (group->parked, pop, next_pop)
			{
				fn(pop);
			}
		}
	}
}

void
waiters_count(const Waiters *waiters,
			  void (*fn)(void *ctx, const Uuid *tenant, Span queue, int parked), void *ctx)
{
	WaitPlace *place, *next;

	HASH_ITER (hh, waiters->places, place, next)
	{
		Uuid tenant;

		memcpy(tenant.bytes, place->key, sizeof(tenant.bytes));
		if (place->parked > 0 && !place->discovery)
			fn(ctx, &tenant, (Span){place->key + 16, place->queue_len}, place->parked);
	}
}
