/*
 * segment_sql.c
 *		Functions that look inside a segment, most of them for SQL.
 *
 * A blob reaches the database as opaque bytes, so none of them trusts it:
 * its size is bounded before memory is taken, and a segment with one bad
 * frame is refused whole.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/uuid.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "frame.h"
#include "function.h"
#include "hash.h"
#include "protocol.h"
#include "segment.h"
#include "segment_sql.h"
#include "utf8.h"

QUEEN_FUNCTION(log_hash);
QUEEN_FUNCTION(log_frame);
QUEEN_FUNCTION(log_frames);
QUEEN_FUNCTION(log_unpack);
QUEEN_FUNCTION(log_segment_hashes);
QUEEN_FUNCTION(log_segment_error);
QUEEN_FUNCTION(log_segment_bytes);

/* A decompressed segment, palloc'd. */
typedef struct Segment
{
	uint8_t *raw;
	size_t len;
	int64_t frames; /* known when every frame was found sound */
} Segment;

/* Kept for the life of the backend: it is 100 kB and more, and slow to make. */
static ZSTD_DCtx *
decompressor(void)
{
	static ZSTD_DCtx *dctx = NULL;

	if (dctx == NULL)
		dctx = ZSTD_createDCtx();
	if (dctx == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
						errdetail("Failed to create a decompression context.")));
	return dctx;
}

int64
segment_bytes(const bytea *blob, int64 frames)
{
	size_t len;

	if (segment_raw_size(VARDATA_ANY(blob), VARSIZE_ANY_EXHDR(blob), &len) != NULL ||
		(len > SEGMENT_MAX_RAW && frames > 1))
		return VARSIZE_ANY_EXHDR(blob);
	return (int64) len;
}

/* Decompresses and walks every frame; NULL, or why the segment is corrupt. */
static const char *
segment_open(const bytea *blob, Segment *segment)
{
	const char *error;
	FrameReader reader;
	Frame frame;

	memset(segment, 0, sizeof(*segment));
	error = segment_raw_size(VARDATA_ANY(blob), VARSIZE_ANY_EXHDR(blob), &segment->len);
	if (error != NULL)
		return error;
	segment->raw = palloc(Max(segment->len, 1));
	error = segment_unpack(decompressor(), VARDATA_ANY(blob), VARSIZE_ANY_EXHDR(blob), segment->raw,
						   segment->len);
	if (error != NULL)
		return error;
	frame_reader_init(&reader, segment->raw, segment->len);
	while (frame_next(&reader, &frame))
		segment->frames++;
	return reader.error;
}

/* As segment_open(), but a corrupt segment is an error. */
static void
segment_open_sound(const bytea *blob, Segment *segment)
{
	const char *error = segment_open(blob, segment);

	if (error != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("segment is corrupt: %s", error)));
}

static void
segment_close(Segment *segment)
{
	if (segment->raw != NULL)
		pfree(segment->raw);
}

/*
 * A text of a frame may hold any bytes.  What a text value cannot hold, bad
 * UTF-8 and NUL, becomes U+FFFD.
 */
static text *
frame_text(Span span)
{
	StringInfoData out;
	text *result;

	initStringInfo(&out);
	while (span.len > 0)
	{
		size_t n = *span.ptr == '\0' ? 0 : utf8_sequence(span.ptr, span.len);

		if (n > 0)
			appendBinaryStringInfo(&out, span.ptr, n);
		else
			appendBinaryStringInfo(&out, "\xEF\xBF\xBD", 3);
		n = Max(n, 1);
		span.ptr += n;
		span.len -= n;
	}
	result = cstring_to_text_with_len(out.data, out.len);
	pfree(out.data);
	return result;
}

static bytea *
bytea_of(const void *data, size_t len)
{
	bytea *result = palloc(VARHDRSZ + len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), data, len);
	return result;
}

static Datum
uuid_datum(const uint8_t *bytes)
{
	pg_uuid_t *uuid = palloc(sizeof(pg_uuid_t));

	memcpy(uuid->data, bytes, UUID_LEN);
	return UUIDPGetDatum(uuid);
}

/* The columns message_id, trace_id, transaction_id and producer_sub. */
static void
identity_columns(const Frame *frame, Datum *values, bool *nulls)
{
	values[0] = uuid_datum(frame->message_id);
	nulls[1] = frame->trace_id == NULL;
	if (!nulls[1])
		values[1] = uuid_datum(frame->trace_id);
	values[2] = PointerGetDatum(frame_text(frame->transaction_id));
	nulls[3] = frame->producer_sub.ptr == NULL;
	if (!nulls[3])
		values[3] = PointerGetDatum(frame_text(frame->producer_sub));
	nulls[0] = nulls[2] = false;
}

#define FRAME_COLUMNS 6

/* The columns of log_frame(), from "flags" on. */
static void
frame_columns(const Frame *frame, Datum *values, bool *nulls)
{
	values[0] = Int32GetDatum(frame->flags);
	identity_columns(frame, values + 1, nulls + 1);
	values[5] = PointerGetDatum(bytea_of(frame->payload.ptr, frame->payload.len));
	nulls[0] = nulls[5] = false;
}

/* Puts frames first..last into the result; what a row needed is freed with it. */
static void
put_frames(ReturnSetInfo *result, const Segment *segment, int32 first, int32 last,
		   void (*put)(ReturnSetInfo *result, int32 number, const Frame *frame))
{
	MemoryContext scratch =
		AllocSetContextCreate(CurrentMemoryContext, "queen frame", ALLOCSET_DEFAULT_SIZES);
	FrameReader reader;
	Frame frame;

	frame_reader_init(&reader, segment->raw, segment->len);
	for (int32 i = 0; i <= last && frame_next(&reader, &frame); i++)
	{
		MemoryContext caller;

		if (i < first)
			continue;
		CHECK_FOR_INTERRUPTS();
		caller = MemoryContextSwitchTo(scratch);
		put(result, i, &frame);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(scratch);
	}
	MemoryContextDelete(scratch);
}

/*
 * log_hash(transaction_id text) returns bytea
 */
Datum
log_hash(PG_FUNCTION_ARGS)
{
	text *id = PG_GETARG_TEXT_PP(0);
	uint8_t hash[HASH_SIZE];

	transaction_hash(VARDATA_ANY(id), VARSIZE_ANY_EXHDR(id), hash);
	PG_RETURN_BYTEA_P(bytea_of(hash, HASH_SIZE));
}

/*
 * log_frame(blob bytea, frame int, OUT flags int, OUT message_id uuid, OUT trace_id uuid,
 *			 OUT transaction_id text, OUT producer_sub text, OUT payload bytea)
 */
Datum
log_frame(PG_FUNCTION_ARGS)
{
	bytea *blob = PG_GETARG_BYTEA_PP(0);
	int32 wanted = PG_GETARG_INT32(1);
	TupleDesc tupdesc;
	Segment segment;
	FrameReader reader;
	Frame frame;
	Datum values[FRAME_COLUMNS];
	bool nulls[FRAME_COLUMNS];
	HeapTuple tuple;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	segment_open_sound(blob, &segment);
	if (wanted < 0 || wanted >= segment.frames)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("segment has no frame %d", wanted)));
	frame_reader_init(&reader, segment.raw, segment.len);
	do
		(void) frame_next(&reader, &frame);
	while (wanted-- > 0);
	frame_columns(&frame, values, nulls);
	segment_close(&segment);

	tuple = heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls);
	PG_RETURN_DATUM(HeapTupleGetDatum(tuple));
}

static void
put_frame(ReturnSetInfo *result, int32 number, const Frame *frame)
{
	Datum values[1 + FRAME_COLUMNS];
	bool nulls[1 + FRAME_COLUMNS];

	values[0] = Int32GetDatum(number);
	nulls[0] = false;
	frame_columns(frame, values + 1, nulls + 1);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * log_frames(blob bytea, first int, last int) returns table (frame int, flags int, ...)
 *		The columns of log_frame() after the number; no rows for a corrupt segment.
 */
Datum
log_frames(PG_FUNCTION_ARGS)
{
	Segment segment;

	InitMaterializedSRF(fcinfo, 0);
	if (segment_open(PG_GETARG_BYTEA_PP(0), &segment) == NULL)
		put_frames((ReturnSetInfo *) fcinfo->resultinfo, &segment, PG_GETARG_INT32(1),
				   PG_GETARG_INT32(2), put_frame);
	segment_close(&segment);
	return (Datum) 0;
}

/*
 * A payload as jsonb.  False when jsonb cannot hold it, whatever the reason:
 * U+0000, a number out of its range, too many elements.  The savepoint takes
 * back what the conversion had begun.
 */
static bool
payload_jsonb(text *payload, Datum *result)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool converted = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		*result = DirectFunctionCall1(jsonb_in, CStringGetDatum(text_to_cstring(payload)));
		ReleaseCurrentSubTransaction();
		converted = true;
	}
	PG_CATCH();
	{
		ErrorData *error;
		int category;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		category = ERRCODE_TO_CATEGORY(error->sqlerrcode);
		if (category == ERRCODE_OPERATOR_INTERVENTION || category == ERRCODE_INSUFFICIENT_RESOURCES)
		{
			MemoryContextSwitchTo(context);
			CurrentResourceOwner = owner;
			ReThrowError(error);
		}
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return converted;
}

static void
put_message(ReturnSetInfo *result, int32 number, const Frame *frame)
{
	text *payload = frame_text(frame->payload.len > 0 ? frame->payload : SPAN_LITERAL("null"));
	Datum values[7];
	bool nulls[7];

	values[0] = Int32GetDatum(number);
	nulls[0] = false;
	identity_columns(frame, values + 1, nulls + 1);
	nulls[5] = !payload_jsonb(payload, &values[5]);
	nulls[6] = !nulls[5];
	values[6] = PointerGetDatum(payload);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * log_unpack(blob bytea, frames int, first int, last int) returns table (frame int,
 *			  message_id uuid, trace_id uuid, transaction_id text, producer_sub text,
 *			  payload jsonb, payload_text text)
 *		No row for a corrupt segment.
 */
Datum
log_unpack(PG_FUNCTION_ARGS)
{
	Segment segment;

	InitMaterializedSRF(fcinfo, 0);
	if (segment_open(PG_GETARG_BYTEA_PP(0), &segment) == NULL &&
		segment.frames == PG_GETARG_INT32(1))
		put_frames((ReturnSetInfo *) fcinfo->resultinfo, &segment, PG_GETARG_INT32(2),
				   PG_GETARG_INT32(3), put_message);
	segment_close(&segment);
	return (Datum) 0;
}

pg_uuid_t *
segment_message_ids(const bytea *blob, int64 *n)
{
	Segment segment;
	FrameReader reader;
	Frame frame;
	pg_uuid_t *ids = NULL;

	*n = 0;
	if (segment_open(blob, &segment) == NULL)
	{
		ids = palloc(segment.frames * sizeof(pg_uuid_t));
		frame_reader_init(&reader, segment.raw, segment.len);
		while (frame_next(&reader, &frame))
			memcpy(ids[(*n)++].data, frame.message_id, UUID_LEN);
	}
	segment_close(&segment);
	return ids;
}

static void
hash_frames(const Segment *segment, uint8 *hashes)
{
	FrameReader reader;
	Frame frame;

	frame_reader_init(&reader, segment->raw, segment->len);
	while (frame_next(&reader, &frame))
	{
		transaction_hash(frame.transaction_id.ptr, frame.transaction_id.len, hashes);
		hashes += HASH_SIZE;
	}
}

uint8 *
segment_hashes(const bytea *blob, int64 frames)
{
	Segment segment;
	uint8 *hashes = NULL;

	if (segment_open(blob, &segment) == NULL && segment.frames == frames)
	{
		hashes = palloc(frames * HASH_SIZE);
		hash_frames(&segment, hashes);
	}
	segment_close(&segment);
	return hashes;
}

/*
 * log_segment_hashes(blob bytea) returns bytea
 */
Datum
log_segment_hashes(PG_FUNCTION_ARGS)
{
	Segment segment;
	bytea *result;

	segment_open_sound(PG_GETARG_BYTEA_PP(0), &segment);
	result = palloc(VARHDRSZ + segment.frames * HASH_SIZE);
	SET_VARSIZE(result, VARHDRSZ + segment.frames * HASH_SIZE);
	hash_frames(&segment, (uint8 *) VARDATA(result));
	segment_close(&segment);
	PG_RETURN_BYTEA_P(result);
}

/*
 * log_segment_error(blob bytea, frames int) returns text
 */
Datum
log_segment_error(PG_FUNCTION_ARGS)
{
	bytea *blob = PG_GETARG_BYTEA_PP(0);
	int32 frames = PG_GETARG_INT32(1);
	Segment segment;
	const char *error = segment_open(blob, &segment);

	segment_close(&segment);
	if (error != NULL)
		PG_RETURN_TEXT_P(cstring_to_text(error));
	if (segment.frames != frames)
		PG_RETURN_TEXT_P(cstring_to_text(
			psprintf("%lld frames instead of %d", (long long) segment.frames, frames)));
	PG_RETURN_NULL();
}

bool
segment_all_encrypted(const bytea *blob)
{
	Segment segment;
	FrameReader reader;
	Frame frame;
	bool all = segment_open(blob, &segment) == NULL;

	if (all)
	{
		frame_reader_init(&reader, segment.raw, segment.len);
		while (all && frame_next(&reader, &frame))
			all = (frame.flags & FRAME_ENCRYPTED) != 0;
	}
	segment_close(&segment);
	return all;
}

/*
 * log_segment_bytes(blob bytea, frames int8)
 */
Datum
log_segment_bytes(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(segment_bytes(PG_GETARG_BYTEA_PP(0), PG_GETARG_INT64(1)));
}
