/*
 * ack_apply.c
 *		One acknowledgement: what it comes to, and does.
 *
 * The lowest negative signal acts; what was completed before it counts.  The
 * cursor moves once, and a dead letter is filed in the same transaction.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "ack.h"
#include "hash.h"
#include "pending.h"
#include "stats.h"

/* The cursor's row, as far as it decides. */
typedef struct Place
{
	int64 committed;
	bool leased; /* a batch is, whether or not its time is over */
	int64 batch_end;
	int retries;
} Place;

typedef enum AckAction
{
	ACTION_ADVANCE,	 /* no batch is leased: completed items move the cursor */
	ACTION_PARTIAL,	 /* the rest of the batch stays leased */
	ACTION_COMPLETE, /* the batch is done */
	ACTION_RELEASE,	 /* the rest is delivered again ... */
	ACTION_CHARGE,	 /* ... and the retry budget pays for it */
	ACTION_BURY,	 /* the message becomes a dead letter and the cursor is past it */
	ACTION_DROP		 /* the same without the letter */
} AckAction;

/* What an acknowledgement comes to. */
typedef struct Decision
{
	AckItem *signal; /* the negative item that acts, NULL: none */
	int64 done;		 /* highest completed offset that counts, -1: none */
	AckAction action;
	int64 target; /* the cursor goes there */
	bool released;
	bool past; /* what the retry budget and the attempts counted is passed */
	bool more; /* messages wait behind a lease that ended */
} Decision;

static Place
read_place(const AckCall *call)
{
	LogTable *consumers = call->consumers;
	TupleTableSlot *row = call->consumer;
	Place place;
	bool none;

	place.committed = DatumGetInt64(row_value(consumers, row, CONSUMERS_COMMITTED));
	place.batch_end = DatumGetInt64(row_get(consumers, row, CONSUMERS_BATCH_END, &none));
	place.leased = !none;
	place.retries = DatumGetInt32(row_value(consumers, row, CONSUMERS_BATCH_RETRY_COUNT));
	return place;
}

/* Whether the worker holds the lease and its time is not over. */
static bool
holds_lease(const AckCall *call, const pg_uuid_t *worker)
{
	bool none;
	Datum value = row_get(call->consumers, call->consumer, CONSUMERS_WORKER_ID, &none);

	if (none || memcmp(DatumGetUUIDP(value), worker, UUID_LEN) != 0)
		return false;
	value = row_get(call->consumers, call->consumer, CONSUMERS_LEASE_EXPIRES_AT, &none);
	return !none && DatumGetTimestampTz(value) >= GetCurrentTimestamp();
}

/*
 * First inside the leased batch, or above a cursor without one; below the
 * cursor only for what is left.  The sidecar is an index, the log is the truth:
 * what the purge has taken away in front of a batch that is still leased is read
 * from the segments, for those who name their lease.
 */
static void
find_items(AckCall *call, const AckCursor *cursor, const Ack *ack, const Place *place)
{
	int64 upto = place->leased ? place->batch_end : PG_INT64_MAX;
	int64 txns_start =
		DatumGetInt64(row_value(call->partitions, call->partition, PARTITIONS_TXNS_START));
	Sought *sought = palloc(ack->n * sizeof(Sought));

	for (int i = 0; i < ack->n; i++)
	{
		const text *id = ack->items[i]->transaction_id;

		transaction_hash(VARDATA_ANY(id), VARSIZE_ANY_EXHDR(id), (uint8 *) sought[i].hash);
		sought[i].offset = -1;
		sought[i].item = i;
	}
	search_begin(call->search, cursor->partition_id, sought, ack->n);
	if (ack->first->worker != NULL && place->leased && place->committed + 1 < txns_start)
		search_segments(call->search, place->committed, Min(upto, txns_start - 1));
	search_sidecar(call->search, place->committed, upto);
	if (call->search->missing > 0)
		search_sidecar_back(call->search, place->committed);
	for (int i = 0; i < ack->n; i++)
		ack->items[sought[i].item]->offset = sought[i].offset;
	pfree(sought);
}

/* Answers the items that are not above the cursor; how many are. */
static int
answer_passed(const Ack *ack, const Place *place)
{
	int acting = 0;

	for (int i = 0; i < ack->n; i++)
	{
		AckItem *item = ack->items[i];

		if (item->offset > place->committed)
			acting++;
		else if (item->offset < 0)
			item->verdict.refusal = "unresolved transaction id";
		else if (item->entry->status == ACK_COMPLETED)
			item->verdict.noop = true;
		else
			item->verdict.refusal = "already committed";
	}
	return acting;
}

/* On one message the strongest signal counts, and of those the first. */
static bool
acts_before(const AckItem *item, const AckItem *other)
{
	return item->offset < other->offset ||
		   (item->offset == other->offset && item->entry->status < other->entry->status);
}

static AckAction
choose_action(const AckCursor *cursor, const Place *place, const Decision *decision)
{
	if (!place->leased)
		return ACTION_ADVANCE;
	if (decision->signal == NULL)
		return decision->done >= place->batch_end ? ACTION_COMPLETE : ACTION_PARTIAL;
	if (decision->signal->entry->status == ACK_RETRY)
		return ACTION_RELEASE;
	if (decision->signal->entry->status == ACK_FAILED && place->retries < cursor->retry_limit)
		return ACTION_CHARGE;
	if (decision->signal->entry->status == ACK_DEAD_LETTER || cursor->letters)
		return ACTION_BURY;
	return ACTION_DROP;
}

/* Whether the cursor passes a message that was not completed. */
static bool
passes_signal(const Decision *decision)
{
	return decision->signal != NULL &&
		   (decision->action == ACTION_BURY || decision->action == ACTION_DROP);
}

static Decision
decide(const AckCall *call, const AckCursor *cursor, const Ack *ack, const Place *place)
{
	Decision decision = {.done = -1};

	for (int i = 0; i < ack->n; i++)
	{
		AckItem *item = ack->items[i];

		if (item->offset > place->committed && item->entry->status != ACK_COMPLETED &&
			(decision.signal == NULL || acts_before(item, decision.signal)))
			decision.signal = item;
	}
	for (int i = 0; i < ack->n; i++)
	{
		const AckItem *item = ack->items[i];

		if (item->entry->status == ACK_COMPLETED &&
			(decision.signal == NULL || item->offset < decision.signal->offset))
			decision.done = Max(decision.done, item->offset);
	}
	decision.action = choose_action(cursor, place, &decision);
	if (passes_signal(&decision))
		decision.target = decision.signal->offset;
	else
		decision.target = Max(decision.done, place->committed);
	decision.released = decision.action != ACTION_ADVANCE && decision.action != ACTION_PARTIAL;
	decision.past = decision.action == ACTION_COMPLETE || decision.action == ACTION_BURY ||
					(decision.action == ACTION_ADVANCE && decision.target > place->committed);
	decision.more =
		decision.released && DatumGetInt64(row_value(call->partitions, call->partition,
													 PARTITIONS_LAST_OFFSET)) > decision.target;
	return decision;
}

static void
move_cursor(AckCall *call, const Place *place, const Decision *decision)
{
	LogTable *consumers = call->consumers;
	int64 consumed = DatumGetInt64(row_value(consumers, call->consumer, CONSUMERS_TOTAL_CONSUMED));

	row_draft(consumers, call->consumer);
	row_set(consumers, CONSUMERS_COMMITTED, Int64GetDatum(decision->target));
	row_set(consumers, CONSUMERS_TOTAL_CONSUMED,
			Int64GetDatum(consumed + decision->target - place->committed));
	if (decision->released)
	{
		row_set_null(consumers, CONSUMERS_BATCH_END);
		row_set_null(consumers, CONSUMERS_WORKER_ID);
		row_set_null(consumers, CONSUMERS_LEASE_EXPIRES_AT);
	}
	if (decision->past || decision->action == ACTION_DROP)
		row_set(consumers, CONSUMERS_BATCH_RETRY_COUNT, Int32GetDatum(0));
	else if (decision->action == ACTION_CHARGE)
		row_set(consumers, CONSUMERS_BATCH_RETRY_COUNT, Int32GetDatum(place->retries + 1));
	if (decision->past)
	{
		row_set(consumers, CONSUMERS_ATTEMPT_COUNT, Int32GetDatum(0));
		row_set_null(consumers, CONSUMERS_ATTEMPT_OFFSET);
	}
	/* The rest of a batch stays a batch that has been delivered before. */
	else if (decision->action != ACTION_DROP && decision->target > place->committed)
		row_set(consumers, CONSUMERS_ATTEMPT_OFFSET, Int64GetDatum(decision->target + 1));
	row_update(consumers, call->consumer);
}

/* The text of the signal, of another item for its message, or of any signal. */
static text *
letter_error(const Ack *ack, const Place *place, const AckItem *signal)
{
	text *any = NULL;

	for (int i = 0; i < ack->n; i++)
	{
		const AckItem *item = ack->items[i];

		if (item->entry->status == ACK_COMPLETED || item->offset <= place->committed ||
			item->entry->error == NULL || VARSIZE_ANY_EXHDR(item->entry->error) == 0)
			continue;
		if (item->offset == signal->offset)
			return item->entry->error;
		if (any == NULL)
			any = item->entry->error;
	}
	return any != NULL ? any : cstring_to_text("Retries exhausted");
}

static void
file_dead_letter(const AckCursor *cursor, const Ack *ack, const Place *place, const AckItem *signal)
{
	Oid types[] = {UUIDOID, TEXTOID, INT8OID, TEXTOID, TEXTOID, INT4OID};
	Datum values[] = {
		UUIDPGetDatum(cursor->partition_id),
		PointerGetDatum(cursor->group),
		Int64GetDatum(signal->offset),
		PointerGetDatum(signal->transaction_id),
		PointerGetDatum(letter_error(ack, place, signal)),
		Int32GetDatum(place->retries),
	};

	SPI_connect();
	if (SPI_execute_with_args("SELECT queen.log_dead_letter($1, $2, $3, $4, $5, $6)", 6, types,
							  values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "log_dead_letter failed");
	SPI_finish();
}

static void
report(const AckCursor *cursor, const Place *place, const Decision *decision)
{
	pending_count(&cursor->queue_id, COUNT_ACKS_COMPLETED,
				  decision->target - place->committed - passes_signal(decision));
	pending_count(&cursor->queue_id, COUNT_ACKS_FAILED, decision->action == ACTION_CHARGE);
	pending_count(&cursor->queue_id, COUNT_ACKS_RETRIED, decision->action == ACTION_RELEASE);
	pending_count(&cursor->queue_id, COUNT_ACKS_DEAD_LETTERED, decision->action == ACTION_BURY);
	pending_count(&cursor->queue_id, COUNT_ACKS_DROPPED, decision->action == ACTION_DROP);
	if (decision->released)
		pending_lease_done(&cursor->queue_id, cursor->partition_id, VARDATA_ANY(cursor->group),
						   VARSIZE_ANY_EXHDR(cursor->group), decision->more);
}

static void
answer_acting(AckCursor *cursor, const Ack *ack, const Place *place, const Decision *decision)
{
	for (int i = 0; i < ack->n; i++)
	{
		AckItem *item = ack->items[i];

		if (item->offset <= place->committed)
			continue;
		item->verdict.acted_on = cursor;
		if (decision->action == ACTION_ADVANCE && item->entry->status != ACK_COMPLETED)
			item->verdict.refusal = "no active lease";
		item->verdict.lease_released = decision->released;
		item->verdict.dead_lettered =
			decision->action == ACTION_BURY && item->offset == decision->target;
		item->verdict.more = decision->more;
	}
}

void
ack_apply(AckCall *call, AckCursor *cursor, const Ack *ack)
{
	const pg_uuid_t *worker = ack->first->worker;
	Place place = read_place(call);
	Decision decision;

	if (worker != NULL && !holds_lease(call, worker))
	{
		for (int i = 0; i < ack->n; i++)
			ack->items[i]->verdict.refusal = "invalid or expired lease";
		return;
	}
	find_items(call, cursor, ack, &place);
	if (answer_passed(ack, &place) == 0)
		return;
	decision = decide(call, cursor, ack, &place);
	move_cursor(call, &place, &decision);
	if (passes_signal(&decision) && decision.action == ACTION_BURY)
		file_dead_letter(cursor, ack, &place, decision.signal);
	report(cursor, &place, &decision);
	answer_acting(cursor, ack, &place, &decision);
}
