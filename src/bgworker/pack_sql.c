/*
 * pack_sql.c
 *		SQL functions that make a segment of messages.
 *
 * The front end packs what it sends; these are for callers in SQL.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#include "frame.h"
#include "function.h"
#include "hash.h"
#include "json.h"
#include "names.h"
#include "protocol.h"
#include "segment.h"
#include "uuid.h"

#define COMPRESSION_LEVEL 3 /* the front end's default */
#define PAYLOAD_MAX (64 * 1024 * 1024)

QUEEN_FUNCTION(log_message_id);
QUEEN_FUNCTION(log_pack);

/* The messages that log_pack() was given: aligned arrays. */
typedef struct Messages
{
	int n;
	Datum *ids;
	Datum *transaction_ids;
	Datum *payloads;
} Messages;

/* The segment that it makes of the first of them. */
typedef struct Packed
{
	int frames;
	StringInfoData raw;
	StringInfoData hashes;
} Packed;

/*
 * log_message_id() returns uuid
 */
Datum
log_message_id(PG_FUNCTION_ARGS)
{
	pg_uuid_t *result = palloc(sizeof(*result));
	Uuid id;

	uuid_v7(&id);
	memcpy(result->data, id.bytes, UUID_LEN);
	PG_RETURN_UUID_P(result);
}

/* The elements of argument "arg"; an error when there are not "n", or one is NULL. */
static Datum *
elements(FunctionCallInfo fcinfo, int arg, Oid type, int16 len, char align, int n)
{
	ArrayType *array = PG_GETARG_ARRAYTYPE_P(arg);
	Datum *result;
	int count;

	if (ARR_HASNULL(array) || ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) != n)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("arrays must have the same length and no null elements")));
	deconstruct_array(array, type, len, false, align, &result, NULL, &count);
	return result;
}

static void
read_messages(FunctionCallInfo fcinfo, Messages *messages)
{
	ArrayType *ids = PG_GETARG_ARRAYTYPE_P(0);
	int n = ArrayGetNItems(ARR_NDIM(ids), ARR_DIMS(ids));

	messages->n = n;
	messages->ids = elements(fcinfo, 0, UUIDOID, UUID_LEN, TYPALIGN_CHAR, n);
	messages->transaction_ids = elements(fcinfo, 1, TEXTOID, -1, TYPALIGN_INT, n);
	messages->payloads = elements(fcinfo, 2, JSONBOID, -1, TYPALIGN_INT, n);
}

/* The limits are those of a push over HTTP: whatever is in the log can be read there. */
static Span
payload_text(Datum payload)
{
	Jsonb *jsonb = DatumGetJsonbP(payload);
	StringInfoData out;
	JsonReader reader;
	JsonValue value;

	initStringInfo(&out);
	(void) JsonbToCString(&out, &jsonb->root, VARSIZE(jsonb));
	if (out.len > PAYLOAD_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("payload is longer than %d bytes", PAYLOAD_MAX)));
	json_begin(&reader, out.data, out.len, JSON_MAX_DEPTH);
	(void) json_value(&reader, &value);
	if (!json_end(&reader))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("invalid payload: %s", reader.error)));
	return (Span){out.data, out.len};
}

/* False when the segment is full. */
static bool
append(Packed *packed, Datum id, Datum transaction_id, Datum payload)
{
	text *txn = DatumGetTextPP(transaction_id);
	Frame frame = {.message_id = DatumGetUUIDP(id)->data,
				   .transaction_id = {VARDATA_ANY(txn), VARSIZE_ANY_EXHDR(txn)},
				   .payload = payload_text(payload)};
	uint8_t hash[HASH_SIZE];
	const char *error;
	size_t size;

	error = transaction_id_check(frame.transaction_id);
	if (error != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("transaction id %s", error)));
	size = frame_size(&frame);
	if (packed->frames > 0 && packed->raw.len + size > SEGMENT_MAX_RAW)
		return false;
	enlargeStringInfo(&packed->raw, size);
	frame_write((uint8_t *) packed->raw.data + packed->raw.len, &frame);
	packed->raw.len += size;
	transaction_hash(frame.transaction_id.ptr, frame.transaction_id.len, hash);
	appendBinaryStringInfo(&packed->hashes, (char *) hash, HASH_SIZE);
	packed->frames++;
	return true;
}

/* Appends messages until the segment is full; what one of them needed is freed with it. */
static void
gather(const Messages *messages, Packed *packed)
{
	MemoryContext scratch =
		AllocSetContextCreate(CurrentMemoryContext, "queen message", ALLOCSET_DEFAULT_SIZES);
	bool room = true;

	memset(packed, 0, sizeof(*packed));
	initStringInfo(&packed->raw);
	initStringInfo(&packed->hashes);
	for (int i = 0; i < Min(messages->n, SEGMENT_MAX_FRAMES) && room; i++)
	{
		MemoryContext caller = MemoryContextSwitchTo(scratch);

		CHECK_FOR_INTERRUPTS();
		room =
			append(packed, messages->ids[i], messages->transaction_ids[i], messages->payloads[i]);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(scratch);
	}
	MemoryContextDelete(scratch);
}

static bytea *
compress(const StringInfoData *raw)
{
	static ZSTD_CCtx *cctx = NULL; /* kept for the life of the backend */
	size_t bound = segment_pack_bound(raw->len);
	bytea *blob = palloc(VARHDRSZ + bound);
	size_t len;

	if (cctx == NULL)
		cctx = ZSTD_createCCtx();
	len = cctx == NULL
			  ? 0
			  : segment_pack(cctx, COMPRESSION_LEVEL, raw->data, raw->len, VARDATA(blob), bound);
	if (len == 0)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
						errdetail("Failed to compress a segment.")));
	SET_VARSIZE(blob, VARHDRSZ + len);
	return blob;
}

/*
 * log_pack(message_ids uuid[], transaction_ids text[], payloads jsonb[], OUT frames int,
 *			OUT hashes bytea, OUT blob bytea)
 */
Datum
log_pack(PG_FUNCTION_ARGS)
{
	TupleDesc tupdesc;
	Messages messages;
	Packed packed;
	bytea *hashes;
	Datum values[3];
	bool nulls[3] = {false};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	read_messages(fcinfo, &messages);
	gather(&messages, &packed);

	hashes = palloc(VARHDRSZ + packed.hashes.len);
	SET_VARSIZE(hashes, VARHDRSZ + packed.hashes.len);
	memcpy(VARDATA(hashes), packed.hashes.data, packed.hashes.len);
	values[0] = Int32GetDatum(packed.frames);
	values[1] = PointerGetDatum(hashes);
	values[2] = PointerGetDatum(compress(&packed.raw));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
