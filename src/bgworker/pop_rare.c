/*
 * pop_rare.c
 *		What pops leave to SQL functions: subscriptions, first contacts,
 *		searches of the tables.
 *
 * The planner's settings pin the plans to primary keys and
 * idx_log_partitions_queue_write: with statistics of a small or an empty table
 * it prefers scans that the next minute's rows make expensive, and the plans
 * are kept for the session.  The penalty that this puts on some estimates must
 * not start the just-in-time compiler.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "pop.h"

/* Partitions that one step of a walk reads. */
#define WALK_STEP 128
#define WALK_STEP_TEXT "128"

static const char *const settings[][2] = {
	{"plan_cache_mode", "force_generic_plan"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_material", "off"},
	{"enable_bitmapscan", "off"},
	{"jit", "off"},
};

/* The request as the SQL functions take it. */
#define REQUEST_TYPES                                                                              \
	UUIDOID, UUIDOID, UUIDOID, TEXTOID, UUIDOID, INT4OID, INT4OID, BOOLOID, TEXTOID,               \
		TIMESTAMPTZOID, INT8OID, INT8OID, INT8OID
#define REQUEST                                                                                    \
	"ROW($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 * interval '1 us', $12 * interval '1 us',"   \
	" $13 * interval '1 us')::queen.log_pop_request"
#define REQUEST_ARGS 13

typedef struct RareCall
{
	const char *sql;
	Oid type; /* of the argument after the request; InvalidOid: there is none */
	SPIPlanPtr plan;
} RareCall;

static RareCall subscribe = {"SELECT queen.log_subscribe(" REQUEST ", $14)", TEXTOID, NULL};
static RareCall first_contact = {"SELECT pg_catalog.cardinality(queen.log_first_contact(" REQUEST
								 ", ARRAY[$14])) > 0",
								 UUIDOID, NULL};
static RareCall find = {"SELECT queen.log_pop_candidates(" REQUEST ")", InvalidOid, NULL};
static RareCall retry = {"SELECT queen.log_pop_retry_at(" REQUEST ")", InvalidOid, NULL};
static RareCall advance = {"SELECT queen.log_advance_watermark(" REQUEST ", $14)", TIMESTAMPTZOID,
						   NULL};
static RareCall walk_start = {"SELECT floor, began FROM queen.log_walk_start(" REQUEST ")",
							  InvalidOid, NULL};
static RareCall walk_step = {"SELECT partition_id, written, until FROM queen.log_walk(" REQUEST
							 ", $14, " WALK_STEP_TEXT ")",
							 TIMESTAMPTZOID, NULL};

static void
prepare(RareCall *call)
{
	Oid types[REQUEST_ARGS + 1] = {REQUEST_TYPES, call->type};

	call->plan = SPI_prepare(call->sql, REQUEST_ARGS + (OidIsValid(call->type) ? 1 : 0), types);
	if (call->plan == NULL || SPI_keepplan(call->plan) != 0)
		elog(ERROR, "could not prepare \"%s\"", call->sql);
}

static void
execute(RareCall *call, const PopRequest *request, Datum arg, bool isnull)
{
	Datum values[REQUEST_ARGS + 1] = {
		UUIDPGetDatum(&request->tenant_id),		UUIDPGetDatum(&request->queue_id),
		UUIDPGetDatum(&request->partition_id),	PointerGetDatum(request->group),
		UUIDPGetDatum(&request->worker_id),		Int32GetDatum(request->batch),
		Int32GetDatum(request->max_partitions), BoolGetDatum(request->auto_ack),
		PointerGetDatum(request->mode),			TimestampTzGetDatum(request->start_at),
		Int64GetDatum(request->lease),			Int64GetDatum(request->delay),
		Int64GetDatum(request->hold),			arg,
	};
	char nulls[REQUEST_ARGS + 1];

	memset(nulls, ' ', sizeof(nulls));
	nulls[2] = request->pinned ? ' ' : 'n';
	nulls[4] = request->auto_ack ? 'n' : ' ';
	nulls[8] = request->mode != NULL ? ' ' : 'n';
	nulls[9] = request->from_time ? ' ' : 'n';
	nulls[13] = isnull ? 'n' : ' ';
	if (SPI_execute_plan(call->plan, values, nulls, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", call->sql);
}

/* Runs the statement; its rows are there until finish(). */
static int
run(RareCall *call, const PopRequest *request, Datum arg, bool isnull)
{
	int level = NewGUCNestLevel();

	for (int i = 0; i < (int) lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	if (call->plan == NULL)
		prepare(call);
	execute(call, request, arg, isnull);
	return level;
}

static void
finish(int level)
{
	SPI_finish();
	AtEOXact_GUC(true, level);
}

static Datum
column(uint64 row, int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, isnull);
}

bool
pop_subscribe(const PopRequest *request, text *named)
{
	int level = run(&subscribe, request, PointerGetDatum(named), false);
	bool isnull;
	bool done = DatumGetBool(column(0, 1, &isnull));

	finish(level);
	return done;
}

bool
pop_first_contact(const PopRequest *request, const pg_uuid_t *partition_id)
{
	int level = run(&first_contact, request, UUIDPGetDatum(partition_id), false);
	bool isnull;
	bool met = DatumGetBool(column(0, 1, &isnull));

	finish(level);
	return met;
}

int
pop_find(const PopRequest *request, pg_uuid_t **partitions)
{
	MemoryContext caller = CurrentMemoryContext;
	int level = run(&find, request, (Datum) 0, true);
	int n = (int) SPI_processed;

	*partitions = MemoryContextAlloc(caller, Max(n, 1) * sizeof(pg_uuid_t));
	for (int i = 0; i < n; i++)
	{
		bool isnull;

		(*partitions)[i] = *DatumGetUUIDP(column(i, 1, &isnull));
	}
	finish(level);
	return n;
}

TimestampTz
pop_retry_at(const PopRequest *request)
{
	int level = run(&retry, request, (Datum) 0, true);
	bool isnull;
	TimestampTz at = DatumGetTimestampTz(column(0, 1, &isnull));

	finish(level);
	return isnull ? DT_NOEND : at;
}

void
pop_advance_watermark(const PopRequest *request, TimestampTz began)
{
	finish(run(&advance, request, TimestampTzGetDatum(began), began == DT_NOEND));
}

/* When the oldest writer began is read before the first step takes its snapshot. */
static void
start_walk(const PopRequest *request, Walk *walk)
{
	int level = run(&walk_start, request, (Datum) 0, true);
	bool isnull;

	walk->position = DatumGetTimestampTz(column(0, 1, &isnull)) - 1;
	walk->began = DatumGetTimestampTz(column(0, 2, &isnull));
	finish(level);
}

bool
pop_walk(const PopRequest *request, Walk *walk)
{
	bool end = true;
	int level;

	if (walk->position == DT_NOBEGIN)
		start_walk(request, walk);
	level = run(&walk_step, request, TimestampTzGetDatum(walk->position), false);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool isnull;
		pg_uuid_t *partition_id = DatumGetUUIDP(column(i, 1, &isnull));
		TimestampTz written = DatumGetTimestampTz(column(i, 2, &isnull));
		TimestampTz until = DatumGetTimestampTz(column(i, 3, &isnull));

		if (!isnull)
			walk->met = true;
		if (!isnull &&
			!worklist_met(&request->queue_id, request->group_number, partition_id, until))
		{
			walk->position = Max(walk->position, written - 1);
			end = false;
			break;
		}
		if (i == SPI_processed - 1)
			walk->position = written;
	}
	end = end && SPI_processed < WALK_STEP;
	finish(level);
	return worklist_walked(&request->queue_id, request->group_number, walk, end);
}
