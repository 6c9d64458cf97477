/*
 * deliver.c
 *		From leased segments to the JSON of a pop's answer.
 *
 * A segment that does not decode is reported to the database, which verifies
 * it and moves the cursor past it or ends the lease before it; only then does
 * the delivery go on with what is still leased.
 */
#include "deliver.h"

#include "crypt.h"
#include "frame.h"
#include "json.h"
#include "log.h"
#include "segment.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>

static void deliver_run(Pop *pop);

void
deliver_rows_release(PopRows *rows)
{
	if (--rows->users == 0)
	{
		PQclear(rows->res);
		free(rows);
	}
}

static void
drop_rows(Pop *pop)
{
	if (pop->rows)
		deliver_rows_release(pop->rows);
	pop->rows = NULL;
}

void
deliver_free(Pop *pop)
{
	drop_rows(pop);
	buf_free(&pop->body);
	free(pop->claimed);
}

/* --- JSON ----------------------------------------------------------------- */

static void
append_uuid(Buf *out, const uint8_t *bytes)
{
	Uuid uuid;
	char text[UUID_TEXT_LEN];

	memcpy(uuid.bytes, bytes, 16);
	uuid_format(&uuid, text);
	buf_append_char(out, '"');
	buf_append(out, text, UUID_TEXT_LEN);
	buf_append_char(out, '"');
}

static void
append_member(Buf *out, const char *name, Span value)
{
	buf_append_str(out, name);
	json_write_text(out, value);
}

static void
append_lease_id(Buf *out, const Pop *pop)
{
	buf_append_str(out, ",\"leaseId\":");
	if (pop->auto_ack)
		buf_append_str(out, "\"\"");
	else
		append_uuid(out, pop->lease_id.bytes);
}

/* Envelope up to its messages; the partition is that of the first row. */
static void
append_envelope(Pop *pop)
{
	const PGresult *res = pop->rows->res;
	Buf *out = &pop->body;

	append_member(out, "{\"success\":true,\"queue\":", pop->queue);
	append_member(out, ",\"partition\":", pgcol_span(res, pop->row, POP_PARTITION));
	buf_append_str(out, ",\"partitionId\":");
	append_uuid(out, (const uint8_t *) PQgetvalue(res, pop->row, POP_PARTITION_ID));
	append_lease_id(out, pop);
	append_member(out, ",\"consumerGroup\":", pop->group);
	buf_append_str(out, ",\"messages\":[");
}

/* The members that all messages of one segment share. */
static void
build_segment_tail(Buf *tail, const Pop *pop, int row)
{
	const PGresult *res = pop->rows->res;

	buf_append_str(tail, ",\"createdAt\":\"");
	pgtime_format(tail, pgcol_int64(res, row, POP_CREATED_AT), 6);
	buf_append_str(tail, "\",\"partitionId\":");
	append_uuid(tail, (const uint8_t *) PQgetvalue(res, row, POP_PARTITION_ID));
	append_member(tail, ",\"partition\":", pgcol_span(res, row, POP_PARTITION));
	append_lease_id(tail, pop);
	append_member(tail, ",\"consumerGroup\":", pop->group);
	buf_printf(tail, ",\"deliveryAttempt\":%d}",
			   pop->auto_ack ? 1 : pgcol_int(res, row, POP_ATTEMPT));
}

static void
append_message(Pop *pop, const Frame *frame, const Buf *tail)
{
	Buf *out = &pop->body;

	buf_append_str(out, pop->n_messages++ ? ",{\"id\":" : "{\"id\":");
	append_uuid(out, frame->message_id);
	append_member(out, ",\"transactionId\":", frame->transaction_id);
	buf_append_str(out, ",\"traceId\":");
	if (frame->trace_id)
		append_uuid(out, frame->trace_id);
	else
		buf_append_str(out, "null");
	buf_append_str(out, ",\"data\":");
	crypt_render(pop->req->worker->crypt, frame->flags, frame->payload, out);
	append_member(out, ",\"producerSub\":", frame->producer_sub);
	buf_append(out, tail->data, tail->len);
}

/* --- segments ------------------------------------------------------------- */

/* Decompresses the row's blob into "raw".  NULL, or why it is corrupt. */
static const char *
unpack_row(ZSTD_DCtx *dctx, const PGresult *res, int row, Buf *raw)
{
	Span blob = pgcol_span(res, row, POP_BLOB);
	int64_t frames =
		pgcol_int64(res, row, POP_END_OFFSET) - pgcol_int64(res, row, POP_BASE_OFFSET) + 1;
	const char *error;
	size_t len;

	error = segment_raw_size(blob.ptr, blob.len, &len);
	if (error)
		return error;
	if (!buf_reserve(raw, len))
		return NULL; /* not the segment's fault; raw->failed tells */
	error = segment_unpack(dctx, blob.ptr, blob.len, raw->data, len);
	raw->len = len;
	return error ? error : segment_check_frames(raw->data, len, frames);
}

/* Appends the row's messages.  NULL, or why the segment is corrupt. */
static const char *
deliver_row(Pop *pop, int row)
{
	const PGresult *res = pop->rows->res;
	int64_t offset = pgcol_int64(res, row, POP_BASE_OFFSET);
	int64_t first = pgcol_int64(res, row, POP_FIRST_OFFSET);
	int64_t last = pgcol_int64(res, row, POP_LAST_OFFSET);
	Buf raw = {0}, tail = {0};
	const char *error = unpack_row(pops_dctx(pop->pops), res, row, &raw);

	if (raw.failed)
		pop->body.failed = true; /* no answer is better than a gap */
	else if (error == NULL)
	{
		FrameReader reader;
		Frame frame;

		build_segment_tail(&tail, pop, row);
		frame_reader_init(&reader, raw.data, raw.len);
		for (; offset <= last && frame_next(&reader, &frame); offset++)
			if (offset >= first)
				append_message(pop, &frame, &tail);
	}
	buf_free(&raw);
	buf_free(&tail);
	return error;
}

static bool
same_partition(const PGresult *res, int a, int b)
{
	return memcmp(PQgetvalue(res, a, POP_PARTITION_ID), PQgetvalue(res, b, POP_PARTITION_ID), 16) ==
		   0;
}

/* Passes over the rest of the current partition: it is not leased any more. */
static void
skip_partition(Pop *pop)
{
	int start = pop->row;

	while (pop->row < pop->end_row && same_partition(pop->rows->res, start, pop->row))
		pop->row++;
}

static void
on_quarantined(DbCall *call, PGresult *res, const DbError *error)
{
	Pop *pop = call->ctx;
	Span status = error ? (Span){NULL, 0} : pgcol_span(res, 0, 0);

	if (error)
		log_event(LOG_LEVEL_ERROR, "could not set a corrupt segment aside", "error", error->message,
				  NULL);
	/* An auto-acked pop has passed the range, and what follows it is delivered now or never. */
	if (pop->auto_ack || span_equals(status, SPAN_LITERAL("skipped")))
		pop->row++;
	else
	{
		/* cut, gone, sound, or not known: leave what follows to a later pop */
		skip_partition(pop);
	}
	PQclear(res);
	deliver_run(pop);
}

static void
quarantine(Pop *pop, const char *why)
{
	const PGresult *res = pop->rows->res;
	DbCall *call = db_call_new(CALL_QUARANTINE, on_quarantined, pop);
	Uuid partition_id;
	char text[UUID_TEXT_LEN + 1] = "";
	char base[24];

	pgcol_uuid(res, pop->row, POP_PARTITION_ID, &partition_id);
	uuid_format(&partition_id, text);
	snprintf(base, sizeof(base), "%lld", (long long) pgcol_int64(res, pop->row, POP_BASE_OFFSET));
	log_event(LOG_LEVEL_ERROR, "segment does not decode", "partition", text, "base_offset", base,
			  "cause", why, NULL);
	metrics_add(&pop->req->worker->metrics, METRIC_CORRUPT_SEGMENTS, 1);

	db_call_uuid(call, 0, &pop->req->tenant);
	db_call_uuid(call, 1, &partition_id);
	db_call_text(call, 2, pop->group);
	db_call_uuid(call, 3, pop->auto_ack ? NULL : &pop->lease_id);
	db_call_int64(call, 4, pgcol_int64(res, pop->row, POP_BASE_OFFSET));
	db_submit(pop->req->worker->db, LANE_WAIT, call);
}

/* --- the whole answer ------------------------------------------------------ */

/* Notes which partitions are under lease, in case the answer cannot be delivered. */
static void
note_claimed(Pop *pop)
{
	const PGresult *res = pop->rows->res;

	pop->n_claimed = 0;
	pop->claimed = realloc(pop->claimed, (size_t) (pop->end_row - pop->row) * sizeof(Uuid));
	if (pop->claimed == NULL)
		abort();
	for (int row = pop->row; row < pop->end_row; row++)
		if (row == pop->row || !same_partition(res, row, row - 1))
			pgcol_uuid(res, row, POP_PARTITION_ID, &pop->claimed[pop->n_claimed++]);
}

/*
 * What an auto-acked pop leaves of a segment is free, and the push has woken nobody
 * for it.  A lease keeps it until it is acknowledged, which wakes the next pop.
 */
static void
pass_on_rest(const Pop *pop)
{
	const PGresult *res = pop->rows->res;
	int last = pop->end_row - 1;
	Span partition = pgcol_span(res, last, POP_PARTITION);

	if (!pop->auto_ack ||
		pgcol_int64(res, last, POP_LAST_OFFSET) == pgcol_int64(res, last, POP_END_OFFSET))
		return;
	pops_wake_group(pop->pops, &pop->req->tenant, pop->queue, partition, pop->group);
	worker_wake_others(pop->req->worker, &pop->req->tenant, pop->queue, partition);
}

/* Nobody will read what was claimed. */
static void
give_up(Pop *pop)
{
	if (!pop->auto_ack)
		deliver_release(pop);
	pop->n_claimed = 0;
	buf_free(&pop->body);
}

static void
deliver_end(Pop *pop)
{
	drop_rows(pop);
	buf_printf(&pop->body, "],\"partitionsClaimed\":%d}", pop->n_claimed);
	if (pop->body.failed)
	{
		give_up(pop);
		pop_reply(pop, 503, "out of memory");
		return;
	}
	if (pop->gone)
	{
		give_up(pop);
		pop_reply(pop, 204, NULL);
		return;
	}
	if (pop->n_messages == 0)
	{
		/* Nothing of it could be decoded. */
		give_up(pop);
		pop_empty(pop, -1);
		return;
	}
	metrics_add(&pop->req->worker->metrics, METRIC_POP_MESSAGES, (uint64_t) pop->n_messages);
	/* Where a timer found work there may be more; a discovery is woken once for several queues. */
	if ((pop->probe || pop->discovery) && pop->wait_group)
		waiters_wake(pop->wait_group);
	pop_reply(pop, 200, NULL);
}

static void
deliver_run(Pop *pop)
{
	while (pop->row < pop->end_row)
	{
		const char *error = deliver_row(pop, pop->row);

		if (error)
		{
			quarantine(pop, error);
			return;
		}
		pop->row++;
	}
	deliver_end(pop);
}

void
deliver_begin(Pop *pop, PopRows *rows, int row, int end)
{
	rows->users++;
	pop->rows = rows;
	pop->row = row;
	pop->end_row = end;
	note_claimed(pop);
	pass_on_rest(pop);
	append_envelope(pop);
	deliver_run(pop);
}

/* --- giving back ----------------------------------------------------------- */

/* Outlives the pop. */
typedef struct Release
{
	Pops *pops;
	Uuid tenant;
	size_t len;
	char group[];
} Release;

static void
on_released(DbCall *call, PGresult *res, const DbError *error)
{
	Release *release = call->ctx;

	for (int row = 0; error == NULL && row < PQntuples(res); row++)
	{
		Span queue = pgcol_span(res, row, 2);

		if (pgcol_bool(res, row, 1) && queue.ptr)
		{
			Span partition = pgcol_span(res, row, 3);

			pops_wake_group(release->pops, &release->tenant, queue, partition,
							(Span){release->group, release->len});
			worker_wake_others(pops_worker(release->pops), &release->tenant, queue, partition);
		}
	}
	PQclear(res);
	free(release);
}

void
deliver_release(Pop *pop)
{
	Release *release = calloc(1, sizeof(*release) + pop->group.len);
	DbCall *call = db_call_new(CALL_RELEASE, on_released, release);
	PgArray *tenants = db_call_array(call, 0, OID_UUID);
	PgArray *partitions = db_call_array(call, 1, OID_UUID);
	PgArray *groups = db_call_array(call, 2, OID_TEXT);
	PgArray *leases = db_call_array(call, 3, OID_UUID);

	release->pops = pop->pops;
	release->tenant = pop->req->tenant;
	release->len = pop->group.len;
	memcpy(release->group, pop->group.ptr, pop->group.len);
	for (int i = 0; i < pop->n_claimed; i++)
	{
		pgarray_add_uuid(tenants, &pop->req->tenant);
		pgarray_add_uuid(partitions, &pop->claimed[i]);
		pgarray_add_span(groups, pop->group);
		pgarray_add_uuid(leases, &pop->lease_id);
	}
	pgarray_end(tenants);
	pgarray_end(partitions);
	pgarray_end(groups);
	pgarray_end(leases);
	db_submit(pops_worker(pop->pops)->db, LANE_READ, call);
}
