/*
 * parked.c
 *		Pops that wait in front ends, as these report them.
 *
 * Each session's last report counts for as long as the session lives, so that
 * a front end that dies takes its pops along.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/uuid.h"

#include "function.h"
#include "shmem.h"
#include "stats.h"

QUEEN_FUNCTION(stat_parked);

typedef struct Report
{
	pg_uuid_t queue; /* hash key */
	int32 parked;	 /* as counted in shared memory */
	int32 reported;	 /* by the current call */
} Report;

static HTAB *reports; /* NULL before the first call */

/* Makes shared memory count what was reported last. */
static void
settle(void)
{
	HASH_SEQ_STATUS scan;
	Report *report;

	hash_seq_init(&scan, reports);
	while ((report = hash_seq_search(&scan)) != NULL)
	{
		if (report->reported != report->parked)
			stats_add_parked(&report->queue, report->reported - report->parked);
		report->parked = report->reported;
		report->reported = 0;
		if (report->parked == 0)
			hash_search(reports, &report->queue, HASH_REMOVE, NULL);
	}
}

static void
at_exit(int code, Datum arg)
{
	settle();
}

static void
start_up(void)
{
	HASHCTL info = {0};

	info.keysize = sizeof(pg_uuid_t);
	info.entrysize = sizeof(Report);
	info.hcxt = TopMemoryContext;
	reports = hash_create("queen parked pops", 16, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(at_exit, 0);
}

static void
add_report(const pg_uuid_t *queue, int32 parked)
{
	bool found;
	Report *report = hash_search(reports, queue, HASH_ENTER, &found);

	if (!found)
	{
		report->parked = 0;
		report->reported = 0;
	}
	report->reported += parked;
}

/*
 * stat_parked(queue_ids uuid[], parked int[])
 */
Datum
stat_parked(PG_FUNCTION_ARGS)
{
	Datum *queues;
	Datum *counts;
	bool *nulls;
	int n;
	int ncounts;

	if (queen_shared == NULL)
		PG_RETURN_VOID();
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &queues,
					  &nulls, &n);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), INT4OID, sizeof(int32), true, TYPALIGN_INT, &counts,
					  NULL, &ncounts);
	if (n != ncounts)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument arrays must have the same length")));
	if (reports == NULL)
		start_up();
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			add_report(DatumGetUUIDP(queues[i]), DatumGetInt32(counts[i]));
	settle();
	PG_RETURN_VOID();
}
