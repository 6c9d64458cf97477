/*
 * fusion.c
 *		Gathers pushed messages into segments and sends them.
 */
#include "fusion.h"

#include "buf.h"
#include "clock.h"
#include "conf.h"
#include "db.h"
#include "hash.h"
#include "hashindex.h"
#include "inflight.h"
#include "maintenance.h"
#include "packer.h"
#include "pop.h"
#include "protocol.h"
#include "push.h"
#include "spool.h"
#include "worker.h"

#include <assert.h>
#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

#define BUNDLE_MAX_SEGMENTS 128				 /* of one call */
#define BUNDLE_MAX_RAW (2 * SEGMENT_MAX_RAW) /* checked before the last one is added */
#define BEHIND_MAX 50000					 /* spooled messages that a new one may wait for */
#define ENCRYPTED_MS 60000
#define ENCRYPTED_SLOTS 256 /* by the first byte of the hash */
#define MISSING_MAX 5		/* times in a row that a partition vanished after it was created */

typedef enum GatherState
{
	GATHER_IDLE,
	GATHER_READY,		/* in the ready list: goes out with others */
	GATHER_BEHIND,		/* in the behind list: the spool has messages to be stored first */
	GATHER_TURNED_AWAY, /* in the turned-away list: another session held its row */
	GATHER_IN_FLIGHT	/* a segment, or the creation of the partition */
} GatherState;

/* A partition with messages on their way into it. */
typedef struct Gather
{
	UT_hash_handle hh;
	struct Gather *prev, *next; /* in the list of its state */
	GatherState state;
	bool encrypt;	  /* the queue is encrypted */
	bool alone;		  /* a bundle failed: find out whether this one is to blame */
	int missing;	  /* answers "missing" in a row */
	int64_t deadline; /* since it was turned away first, monotonic milliseconds; 0: it was not */
	PushItem *head, **tail;
	int n_gathered;	   /* messages from head on */
	PushItem **flight; /* messages of the segment in flight, in frame order */
	int n_flight;
	Uuid tenant;
	Span queue, partition; /* point into key */
	size_t key_len;
	char key[];
} Gather;

/* A queue that turned out to be encrypted. */
typedef struct EncryptedQueue
{
	uint8_t hash[HASH_SIZE]; /* of tenant and name */
	int64_t until;			 /* monotonic milliseconds */
} EncryptedQueue;

struct Fusion
{
	struct Worker *worker;
	Gather *gathers; /* hash table by key */
	Buf key;		 /* of the one looked up last */
	Gather *ready;
	Gather *behind;
	Gather *turned_away;
	int n_ready;		   /* partitions in the ready list */
	int64_t ready_frames;  /* messages of these */
	InFlight flight;	   /* segments in calls of the push lane */
	int64_t flying_frames; /* messages in these */
	EncryptedQueue encrypted[ENCRYPTED_SLOTS];
};

/* One call in flight. */
typedef struct Bundle
{
	Fusion *fusion;
	DbLaneId lane;
	int64_t frames;
	int n;
	Gather *gathers[BUNDLE_MAX_SEGMENTS];
} Bundle;

/* --- encrypted queues ----------------------------------------------------- */

/*
 * Whether a queue is encrypted is for the database to say, by refusing clear
 * text.  Remembering it for a while spares each segment that first try.
 */
static EncryptedQueue *
encrypted_slot(Fusion *fusion, const Gather *gather, uint8_t hash[HASH_SIZE])
{
	transaction_hash(gather->key, 16 + gather->queue.len, hash);
	return &fusion->encrypted[hash[0]];
}

static bool
known_as_encrypted(Fusion *fusion, const Gather *gather)
{
	uint8_t hash[HASH_SIZE];
	const EncryptedQueue *slot = encrypted_slot(fusion, gather, hash);

	return memcmp(slot->hash, hash, HASH_SIZE) == 0 && slot->until > clock_ms();
}

static void
remember_encrypted(Fusion *fusion, const Gather *gather)
{
	uint8_t hash[HASH_SIZE];
	EncryptedQueue *slot = encrypted_slot(fusion, gather, hash);

	memcpy(slot->hash, hash, HASH_SIZE);
	slot->until = clock_ms() + ENCRYPTED_MS;
}

Fusion *
fusion_new(struct Worker *worker)
{
	Fusion *fusion = calloc(1, sizeof(*fusion));

	fusion->worker = worker;
	return fusion;
}

void
fusion_free(Fusion *fusion)
{
	buf_free(&fusion->key);
	free(fusion);
}

bool
fusion_idle(const Fusion *fusion)
{
	return fusion->gathers == NULL;
}

/* --- gathering ----------------------------------------------------------- */

/* Names hold no control characters, so the separator cannot be part of one. */
static Gather *
gather_find_or_create(Fusion *fusion, const Uuid *tenant, Span queue, Span partition)
{
	Buf *key = &fusion->key;
	Gather *gather;

	buf_reset(key);
	buf_append(key, tenant->bytes, 16);
	buf_append(key, queue.ptr, queue.len);
	buf_append_char(key, '\x1f');
	buf_append(key, partition.ptr, partition.len);
	if (key->failed)
		abort();
	HASH_FIND(hh, fusion->gathers, key->data, key->len, gather);
	if (gather)
		return gather;
	gather = calloc(1, sizeof(*gather) + key->len);
	if (gather == NULL)
		abort();
	memcpy(gather->key, key->data, key->len);
	gather->key_len = key->len;
	gather->tenant = *tenant;
	gather->queue = (Span){gather->key + 16, queue.len};
	gather->partition = (Span){gather->key + 17 + queue.len, partition.len};
	gather->tail = &gather->head;
	gather->encrypt = known_as_encrypted(fusion, gather);
	HASH_ADD_KEYPTR(hh, fusion->gathers, gather->key, gather->key_len, gather);
	return gather;
}

static void
gather_make_ready(Fusion *fusion, Gather *gather)
{
	gather->state = GATHER_READY;
	fusion->n_ready++;
	fusion->ready_frames += gather->n_gathered;
	DL_APPEND(fusion->ready, gather);
}

static void
gather_leave_list(Fusion *fusion, Gather **list, Gather *gather)
{
	DL_DELETE(*list, gather);
	if (list == &fusion->ready)
	{
		fusion->n_ready--;
		fusion->ready_frames -= gather->n_gathered;
	}
}

/* Nothing is in flight any more: next segment, or done with this partition. */
static void
gather_next(Fusion *fusion, Gather *gather)
{
	gather->deadline = 0;
	if (gather->head)
	{
		gather_make_ready(fusion, gather);
		return;
	}
	HASH_DEL(fusion->gathers, gather);
	free(gather);
}

/* --- what became of a message -------------------------------------------- */

static void
decide_one(PushItem *item, PushStatus status, const Uuid *id, int http_status, const char *error)
{
	item->status = status;
	item->message_id = *id;
	item->http_status = http_status;
	item->error = error ? strdup(error) : NULL;
	push_item_decided(item);
}

/* Repeats of a stored message are duplicates of it; otherwise they share its fate. */
static void
decide(PushItem *item, PushStatus status, const Uuid *id, int http_status, const char *error)
{
	PushItem *repeat;
	Uuid final_id;

	assert(item != NULL && id != NULL);
	final_id = *id;
	repeat = item->repeats;
	decide_one(item, status, &final_id, http_status, error);
	while (repeat)
	{
		PushItem *next = repeat->next;

		decide_one(repeat, status == PUSH_QUEUED ? PUSH_DUPLICATE : status,
				   status == PUSH_FAILED ? &repeat->message_id : &final_id, http_status, error);
		repeat = next;
	}
}

static void
fail_item(PushItem *item, int http_status, const char *error)
{
	decide(item, PUSH_FAILED, &item->message_id, http_status, error);
}

/* Fails the segment in flight; what waits behind it goes out next. */
static void
fail_flight(Gather *gather, int http_status, const char *error)
{
	for (int i = 0; i < gather->n_flight; i++)
		fail_item(gather->flight[i], http_status, error);
	free(gather->flight);
	gather->flight = NULL;
	gather->n_flight = 0;
}

static void
fail_gathered(Gather *gather, int http_status, const char *error)
{
	PushItem *item = gather->head;

	gather->head = NULL;
	gather->tail = &gather->head;
	gather->n_gathered = 0;
	while (item)
	{
		PushItem *next = item->next;

		fail_item(item, http_status, error);
		item = next;
	}
}

/* --- arriving ------------------------------------------------------------ */

/*
 * What comes behind spooled messages is spooled, unless they are so few that
 * they will be stored in a moment: else a partition under load would never
 * get out of the spool.
 */
static bool
add_to_spool(Fusion *fusion, const Uuid *tenant, Span queue, Span partition, PushItem *item,
			 long long before)
{
	if (!maintenance_push() && before <= BEHIND_MAX &&
		(before == 0 || !db_lane_down(fusion->worker->db, LANE_PUSH)))
		return false;
	if (!spool_add(fusion->worker, tenant, queue, partition, item))
		fail_item(item, 503,
				  spool_available() ? "the spool is full" : "pushes are under maintenance");
	return true;
}

void
fusion_add(Fusion *fusion, const Uuid *tenant, Span queue, Span partition, PushItem *item)
{
	long long before = spool_count(tenant, queue, partition);
	Gather *gather;

	push_item_mint(item);
	if (add_to_spool(fusion, tenant, queue, partition, item, before))
		return;
	gather = gather_find_or_create(fusion, tenant, queue, partition);
	item->next = NULL;
	*gather->tail = item;
	gather->tail = &item->next;
	gather->n_gathered++;
	if (gather->state == GATHER_READY)
		fusion->ready_frames++;
	else if (gather->state == GATHER_IDLE && before == 0)
		gather_make_ready(fusion, gather);
	else if (gather->state == GATHER_IDLE)
	{
		gather->state = GATHER_BEHIND;
		DL_APPEND(fusion->behind, gather);
	}
}

/* --- packing ------------------------------------------------------------- */

/* Moves the messages of the next segment into flight, up to the caps. */
static size_t
take_segment(Fusion *fusion, Gather *gather)
{
	HashIndex index;
	void *memory;
	PushItem *item;
	size_t raw = 0;
	int n = 0;

	assert(gather->head != NULL);
	for (item = gather->head; item && n < SEGMENT_MAX_FRAMES; item = item->next)
		n++;
	gather->flight = calloc((size_t) n, sizeof(*gather->flight));
	memory = calloc(1, hash_index_size((size_t) n));
	if (gather->flight == NULL || memory == NULL)
		abort();
	hash_index_init(&index, (size_t) n, memory);
	while ((item = gather->head) != NULL && gather->n_flight < n)
	{
		Frame frame;
		size_t size;
		int64_t leader;

		if (gather->encrypt && !push_item_seal(item, fusion->worker->crypt))
		{
			gather->head = item->next;
			gather->n_gathered--;
			fail_item(item, 503, "out of memory");
			continue;
		}
		frame = push_item_frame(item);
		size = frame_size(&frame);
		if (raw > 0 && raw + size > SEGMENT_MAX_RAW)
			break;
		gather->head = item->next;
		gather->n_gathered--;
		item->next = NULL;
		leader = hash_index_add(&index, item->hash, (uint32_t) gather->n_flight);
		if (leader >= 0)
		{
			LL_APPEND(gather->flight[leader]->repeats, item);
			continue;
		}
		gather->flight[gather->n_flight++] = item;
		raw += size;
	}
	if (gather->head == NULL)
		gather->tail = &gather->head;
	free(memory);
	return raw;
}

/* Puts what is left of the segment in flight back in front, in order. */
static void
return_flight(Gather *gather)
{
	for (int i = gather->n_flight - 1; i >= 0; i--)
	{
		PushItem *item = gather->flight[i];

		if (item == NULL)
			continue;
		if (gather->head == NULL)
			gather->tail = &item->next;
		item->next = gather->head;
		gather->head = item;
		gather->n_gathered++;
	}
	free(gather->flight);
	gather->flight = NULL;
	gather->n_flight = 0;
}

/* --- the spool ----------------------------------------------------------- */

/* Errors of a database that is away, overloaded, or no longer the primary. */
static bool
is_outage(const DbError *error)
{
	static const char *const classes[] = {"08", "53", "57P0", "58", "25006"};

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (strncmp(error->sqlstate, classes[i], strlen(classes[i])) == 0)
			return true;
	return error->sqlstate[0] == '\0';
}

static void
spool_item(Fusion *fusion, const Gather *gather, PushItem *item, const char *error)
{
	if (!spool_add(fusion->worker, &gather->tenant, gather->queue, gather->partition, item))
		fail_item(item, 503, error);
}

/* What is in flight, then what waits behind it: in their order. */
static void
spool_gather(Fusion *fusion, Gather *gather, const char *error)
{
	PushItem *item;

	if (gather->flight)
		return_flight(gather);
	item = gather->head;
	gather->head = NULL;
	gather->tail = &gather->head;
	gather->n_gathered = 0;
	while (item)
	{
		PushItem *next = item->next;

		spool_item(fusion, gather, item, error);
		item = next;
	}
}

void
fusion_spooled(PushItem *item)
{
	if (item->status == PUSH_BUFFERED)
		decide(item, PUSH_BUFFERED, &item->message_id, 0, NULL);
	else
		fail_item(item, 503, "could not write the spool");
}

/* --- verdicts ------------------------------------------------------------ */

static void
segment_stored(Fusion *fusion, Gather *gather, const DbCall *follower)
{
	Metrics *metrics = &fusion->worker->metrics;

	metrics_add(metrics, METRIC_PUSH_MESSAGES, (uint64_t) gather->n_flight);
	for (int i = 0; i < gather->n_flight; i++)
		decide(gather->flight[i], PUSH_QUEUED, &gather->flight[i]->message_id, 0, NULL);
	free(gather->flight);
	gather->flight = NULL;
	gather->n_flight = 0;
	pops_wake_pushed(fusion->worker->pops, follower, &gather->tenant, gather->queue,
					 gather->partition);
	worker_wake_others(fusion->worker, &gather->tenant, gather->queue, gather->partition);
}

/* The flagged frames are decided; the others go out again, in their order. */
static void
segment_duplicate(Gather *gather, const PGresult *res, int row)
{
	PgArrayReader frames, ids;
	Span frame, id;
	int flagged = 0;

	pgarray_read(&frames, res, row, PUSH_DUPLICATE_FRAMES);
	pgarray_read(&ids, res, row, PUSH_DUPLICATE_IDS);
	while (pgarray_next(&frames, &frame) && pgarray_next(&ids, &id))
	{
		int i = pgspan_int(frame);
		Uuid original = {{0}};

		if (i < 0 || i >= gather->n_flight || gather->flight[i] == NULL)
			continue;
		if (id.len == 16)
			memcpy(original.bytes, id.ptr, 16);
		decide(gather->flight[i], PUSH_DUPLICATE, &original, 0, NULL);
		gather->flight[i] = NULL;
		flagged++;
	}
	if (flagged == 0)
		fail_flight(gather, 500, "the database reported a duplicate but not which");
	else
		return_flight(gather);
}

/* The queue is encrypted and the segment in flight holds clear text. */
static void
segment_in_clear(Fusion *fusion, Gather *gather)
{
	if (fusion->worker->crypt == NULL)
		fail_flight(gather, 400, "the queue is encrypted and this server has no key");
	else if (gather->encrypt)
		fail_flight(gather, 500, "the database took encrypted messages for clear text");
	else
	{
		gather->encrypt = true;
		remember_encrypted(fusion, gather);
		return_flight(gather);
	}
}

static void provision(Fusion *fusion, Gather *const *gathers, int n);

static void
on_provisioned(DbCall *call, PGresult *res, const DbError *error)
{
	Bundle *bundle = call->ctx;

	if (error && bundle->n > 1 && strcmp(error->sqlstate, "55P03") == 0)
	{
		/* Another session holds one of the names: the others need not wait for it. */
		for (int i = 0; i < bundle->n; i++)
			provision(bundle->fusion, &bundle->gathers[i], 1);
		free(bundle);
		return;
	}
	for (int i = 0; i < bundle->n; i++)
	{
		Gather *gather = bundle->gathers[i];

		if (error && spool_available() && is_outage(error))
			spool_gather(bundle->fusion, gather, error->message);
		else if (error)
			fail_gathered(gather, db_error_status(error), error->message);
		gather_next(bundle->fusion, gather);
	}
	PQclear(res);
	free(bundle);
}

/* Creates queues and partitions; their messages wait in front. */
static void
provision(Fusion *fusion, Gather *const *gathers, int n)
{
	Bundle *bundle = calloc(1, sizeof(*bundle));
	DbCall *call = db_call_new(CALL_PROVISION, on_provisioned, bundle);
	PgArray *tenants = db_call_array(call, 0, OID_UUID);
	PgArray *queues = db_call_array(call, 1, OID_TEXT);
	PgArray *partitions = db_call_array(call, 2, OID_TEXT);

	bundle->fusion = fusion;
	bundle->n = n;
	for (int i = 0; i < n; i++)
	{
		bundle->gathers[i] = gathers[i];
		pgarray_add_uuid(tenants, &gathers[i]->tenant);
		pgarray_add_span(queues, gathers[i]->queue);
		pgarray_add_span(partitions, gathers[i]->partition);
	}
	pgarray_end(tenants);
	pgarray_end(queues);
	pgarray_end(partitions);
	call->no_patience = n > 1;
	db_submit(fusion->worker->db, LANE_WAIT, call);
}

/* Acts on one verdict.  True when the partition has to be created first. */
static bool
segment_verdict(Fusion *fusion, Gather *gather, const DbCall *call, const PGresult *res, int row)
{
	Span status = pgcol_span(res, row, PUSH_STATUS);

	if (span_equals(status, SPAN_LITERAL("missing")) && ++gather->missing <= MISSING_MAX)
	{
		return_flight(gather);
		return true;
	}
	if (span_equals(status, SPAN_LITERAL("busy")))
	{
		return_flight(gather);
		gather->state = GATHER_TURNED_AWAY;
		if (gather->deadline == 0)
			gather->deadline = clock_ms() + fusion->worker->conf->lock_timeout_ms;
		DL_APPEND(fusion->turned_away, gather);
		return false;
	}
	gather->alone = false;
	if (span_equals(status, SPAN_LITERAL("queued")))
	{
		gather->missing = 0;
		segment_stored(fusion, gather, call->follower);
	}
	else if (span_equals(status, SPAN_LITERAL("duplicate")))
		segment_duplicate(gather, res, row);
	else if (span_equals(status, SPAN_LITERAL("clear")))
		segment_in_clear(fusion, gather);
	else if (span_equals(status, SPAN_LITERAL("invalid")))
	{
		char *text =
			strndup(PQgetvalue(res, row, PUSH_ERROR), (size_t) PQgetlength(res, row, PUSH_ERROR));

		fail_flight(gather, 400, text);
		free(text);
	}
	else
		fail_flight(gather, 503, "the partition is being deleted");
	gather_next(fusion, gather);
	return false;
}

/*
 * The whole call failed.  Nothing was stored, unless the connection broke.  If
 * it may be the fault of one entry, the entries go out again one by one.
 */
static void
bundle_failed(Bundle *bundle, const DbError *error)
{
	int status = db_error_status(error);

	metrics_add(&bundle->fusion->worker->metrics, METRIC_DB_ERRORS, 1);
	for (int i = 0; i < bundle->n; i++)
	{
		Gather *gather = bundle->gathers[i];

		if (spool_available() && is_outage(error))
			spool_gather(bundle->fusion, gather, error->message);
		else if (bundle->n > 1 && status != 503)
		{
			gather->alone = true;
			return_flight(gather);
		}
		else
			fail_flight(gather, status == 400 ? 500 : status, error->message);
		gather_next(bundle->fusion, gather);
	}
}

static void
on_pushed(DbCall *call, PGresult *res, const DbError *error)
{
	Bundle *bundle = call->ctx;
	Gather *missing[BUNDLE_MAX_SEGMENTS];
	int n_missing = 0;

	if (bundle->lane == LANE_PUSH)
	{
		inflight_answered(&bundle->fusion->flight, bundle->n);
		bundle->fusion->flying_frames -= bundle->frames;
	}
	if (error)
	{
		bundle_failed(bundle, error);
		free(bundle);
		return;
	}
	for (int row = 0; row < PQntuples(res); row++)
	{
		Gather *gather = bundle->gathers[pgcol_int(res, row, PUSH_ENTRY) - 1];

		if (segment_verdict(bundle->fusion, gather, call, res, row))
			missing[n_missing++] = gather;
	}
	PQclear(res);
	if (n_missing > 0)
		provision(bundle->fusion, missing, n_missing);
	free(bundle);
}

/* --- sending ------------------------------------------------------------- */

/* Has parked pops look for the messages in the transaction that stores them. */
static void
add_pops(const Bundle *bundle, DbCall *call)
{
	Pops *pops = bundle->fusion->worker->pops;
	PopBundle *looking = NULL;

	for (int i = 0; i < bundle->n; i++)
	{
		const Gather *gather = bundle->gathers[i];

		looking = pops_follow(pops, looking, &gather->tenant, gather->queue, gather->partition);
	}
	if (looking)
		db_call_follow(call, LANE_READ, pops_call(looking));
}

/* Adds a segment of the partition, if anything is left for one; returns its size. */
static size_t
add_segment(Bundle *bundle, Gather *gather, SegmentColumns *columns)
{
	Fusion *fusion = bundle->fusion;
	Packer *packer = fusion->worker->packer;
	size_t raw = take_segment(fusion, gather);

	if (gather->n_flight == 0)
	{
		free(gather->flight);
		gather->flight = NULL;
	}
	else if (!packer_pack(packer, gather->flight, (size_t) gather->n_flight, raw))
		fail_flight(gather, 503, "out of memory");
	else
	{
		segment_columns_add(columns, &gather->tenant, gather->queue, gather->partition,
							(size_t) gather->n_flight, packer);
		bundle->gathers[bundle->n++] = gather;
		bundle->frames += gather->n_flight;
		return raw;
	}
	gather_next(fusion, gather);
	return 0;
}

/* Builds and sends one call with the first segments of the list. */
static void
send_bundle(Fusion *fusion, Gather **list, DbLaneId lane, int max)
{
	Bundle *bundle = calloc(1, sizeof(*bundle));
	DbCall *call = db_call_new(CALL_PUSH, on_pushed, bundle);
	SegmentColumns columns;
	size_t raw_total = 0;

	segment_columns_begin(&columns, call->params, 1);
	columns.tenants = db_call_array(call, 0, OID_UUID);
	bundle->fusion = fusion;
	bundle->lane = lane;
	while (*list && bundle->n < max && raw_total < BUNDLE_MAX_RAW)
	{
		Gather *gather = *list;
		bool alone = gather->alone;

		if (alone && bundle->n > 0)
			break;
		gather_leave_list(fusion, list, gather);
		gather->state = GATHER_IN_FLIGHT;
		raw_total += add_segment(bundle, gather, &columns);
		if (alone && bundle->n > 0)
			break;
	}
	if (bundle->n == 0)
	{
		free(bundle);
		db_call_free(call);
		return;
	}
	segment_columns_end(&columns);
	db_call_bool(call, 6, lane == LANE_WAIT);
	if (lane == LANE_PUSH)
	{
		inflight_sent(&fusion->flight, bundle->n);
		fusion->flying_frames += bundle->frames;
		add_pops(bundle, call);
	}
	metrics_add(&fusion->worker->metrics, METRIC_PUSH_CALLS, 1);
	metrics_add(&fusion->worker->metrics, METRIC_PUSH_SEGMENTS, (uint64_t) bundle->n);
	db_submit(fusion->worker->db, lane, call);
}

static void
spool_list(Fusion *fusion, Gather **list)
{
	while (*list)
	{
		Gather *gather = *list;

		gather_leave_list(fusion, list, gather);
		spool_gather(fusion, gather, "database not available");
		gather_next(fusion, gather);
	}
}

/* As large in segments, or in messages. */
static bool
worth_a_call(const Fusion *fusion)
{
	return fusion->ready_frames >= fusion->flying_frames ||
		   inflight_worth_a_call(&fusion->flight, fusion->n_ready);
}

void
fusion_tick(Fusion *fusion)
{
	int64_t now = clock_ms();

	while (fusion->turned_away)
	{
		Gather *gather = fusion->turned_away;

		gather_leave_list(fusion, &fusion->turned_away, gather);
		if (gather->deadline >= now)
		{
			gather_make_ready(fusion, gather);
			continue;
		}
		fail_gathered(gather, 503, "the partition is held by another session");
		gather_next(fusion, gather);
	}
}

/* Those whose spooled messages are stored now may go. */
static void
release_behind(Fusion *fusion)
{
	Gather *gather, *next;

	DL_FOREACH_SAFE (fusion->behind, gather, next)
	{
		if (spool_count(&gather->tenant, gather->queue, gather->partition) > 0)
			continue;
		gather_leave_list(fusion, &fusion->behind, gather);
		gather_make_ready(fusion, gather);
	}
}

void
fusion_dispatch(Fusion *fusion)
{
	Db *db = fusion->worker->db;

	if (maintenance_push())
	{
		spool_list(fusion, &fusion->ready);
		spool_list(fusion, &fusion->behind);
	}
	release_behind(fusion);
	while (fusion->ready && maintenance_known() && db_lane_free(db, LANE_PUSH) &&
		   worth_a_call(fusion))
		send_bundle(fusion, &fusion->ready, LANE_PUSH, BUNDLE_MAX_SEGMENTS);
	/* A place to wait for everybody is not to be had: the others try again at the next tick. */
	while (fusion->turned_away && db_lane_spare(db, LANE_WAIT))
		send_bundle(fusion, &fusion->turned_away, LANE_WAIT, 1);
	if (db_lane_down(db, LANE_PUSH))
	{
		spool_list(fusion, &fusion->ready);
		spool_list(fusion, &fusion->behind);
	}
	if (db_lane_down(db, LANE_WAIT))
		spool_list(fusion, &fusion->turned_away);
}
