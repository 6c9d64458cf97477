/*
 * parked.c
 *		Reports to the database how many pops are parked, for its statistics.
 *
 * A report replaces the session's last one, and ends with the session.
 */
#include "parked.h"

#include "clock.h"
#include "db.h"
#include "worker.h"

#include <stdlib.h>
#include <uthash.h>

#define REPORT_MS 2000

typedef struct QueueCount
{
	UT_hash_handle hh;
	int parked;
	size_t len;
	char key[]; /* tenant, queue */
} QueueCount;

static void
add_place(void *ctx, const Uuid *tenant, Span queue, int parked)
{
	QueueCount **counts = ctx;
	size_t len = sizeof(tenant->bytes) + queue.len;
	QueueCount *fresh = calloc(1, sizeof(*fresh) + len);
	QueueCount *found;

	if (fresh == NULL)
		return; /* statistics can wait */
	memcpy(fresh->key, tenant->bytes, sizeof(tenant->bytes));
	memcpy(fresh->key + sizeof(tenant->bytes), queue.ptr, queue.len);
	fresh->len = len;
	HASH_FIND(hh, *counts, fresh->key, len, found);
	if (found)
	{
		found->parked += parked;
		free(fresh);
		return;
	}
	fresh->parked = parked;
	HASH_ADD_KEYPTR(hh, *counts, fresh->key, len, fresh);
}

static void
on_reported(DbCall *call, PGresult *res, const DbError *error)
{
	(void) call;
	(void) error;
	PQclear(res);
}

/* Consumes the counts. */
static void
send_report(Db *db, QueueCount *counts)
{
	DbCall *call = db_call_new(CALL_PARKED, on_reported, NULL);
	PgArray *tenants = db_call_array(call, 0, OID_UUID);
	PgArray *queues = db_call_array(call, 1, OID_TEXT);
	PgArray *parked = db_call_array(call, 2, OID_INT4);
	QueueCount *count = counts, *next;

	HASH_CLEAR(hh, counts);
	for (; count; count = next)
	{
		next = count->hh.next;
		pgarray_add(tenants, count->key, sizeof(Uuid));
		pgarray_add(queues, count->key + sizeof(Uuid), count->len - sizeof(Uuid));
		pgarray_add_int(parked, count->parked);
		free(count);
	}
	pgarray_end(tenants);
	pgarray_end(queues);
	pgarray_end(parked);
	db_submit(db, LANE_ADMIN, call);
}

void
parked_tick(struct Worker *worker, const Waiters *waiters)
{
	QueueCount *counts = NULL;
	int64_t now = clock_ms();
	bool any = waiters_parked(waiters) > 0;

	if (now < worker->parked_report_at || !db_lane_free(worker->db, LANE_ADMIN) ||
		(!any && !worker->parked_reported))
		return;
	worker->parked_report_at = now + REPORT_MS;
	worker->parked_reported = any;
	waiters_count(waiters, add_place, &counts);
	send_report(worker->db, counts);
}
