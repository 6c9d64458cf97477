/*
 * rows.c
 *		Reads, locks and writes rows of the extension's tables without SQL.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "rows.h"

typedef struct Comparisons
{
	Oid type;
	RegProcedure procs[BTMaxStrategyNumber]; /* <, <=, =, >=, > */
} Comparisons;

/* Of the types that indexes of the extension have. */
static const Comparisons comparisons[] = {
	{UUIDOID, {F_UUID_LT, F_UUID_LE, F_UUID_EQ, F_UUID_GE, F_UUID_GT}},
	{TEXTOID, {F_TEXT_LT, F_TEXT_LE, F_TEXTEQ, F_TEXT_GE, F_TEXT_GT}},
	{INT8OID, {F_INT8LT, F_INT8LE, F_INT8EQ, F_INT8GE, F_INT8GT}},
	{TIMESTAMPTZOID,
	 {F_TIMESTAMPTZ_LT, F_TIMESTAMPTZ_LE, F_TIMESTAMPTZ_EQ, F_TIMESTAMPTZ_GE, F_TIMESTAMPTZ_GT}},
};

void
rows_begin(void)
{
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
rows_statement(void)
{
	PopActiveSnapshot();
	rows_begin();
}

TupleTableSlot *
row_slot(LogTable *table)
{
	return table_slot_create(table->rel, NULL);
}

static RegProcedure
comparison(Oid type, StrategyNumber strategy)
{
	for (int i = 0; i < (int) lengthof(comparisons); i++)
		if (comparisons[i].type == type)
			return comparisons[i].procs[strategy - 1];
	elog(ERROR, "index column of unexpected type %u", type);
}

void
row_key(ScanKey key, LogTable *table, LogIndexId index, int column, StrategyNumber strategy,
		Datum value)
{
	Relation rel = log_table_index(table, index);

	ScanKeyEntryInitialize(key, 0, column, strategy, InvalidOid, rel->rd_indcollation[column - 1],
						   comparison(rel->rd_opcintype[column - 1], strategy), value);
}

IndexScanDesc
row_scan(LogTable *table, LogIndexId index, ScanKey keys, int nkeys)
{
	Relation rel = log_table_index(table, index);
	IndexScanDesc scan;

#if PG_VERSION_NUM >= 180000
	scan = index_beginscan(table->rel, rel, GetActiveSnapshot(), NULL, nkeys, 0);
#else
	scan = index_beginscan(table->rel, rel, GetActiveSnapshot(), nkeys, 0);
#endif
	index_rescan(scan, keys, nkeys, NULL, 0);
	return scan;
}

bool
row_find(LogTable *table, LogIndexId index, ScanKey keys, int nkeys, TupleTableSlot *row)
{
	IndexScanDesc scan = row_scan(table, index, keys, nkeys);
	bool found = index_getnext_slot(scan, ForwardScanDirection, row);

	index_endscan(scan);
	return found;
}

static bool
meets(LogTable *table, LogIndexId index, ScanKey keys, int nkeys, TupleTableSlot *row)
{
	const int2vector *columns = &log_table_index(table, index)->rd_index->indkey;

	for (int i = 0; i < nkeys; i++)
	{
		bool isnull;
		Datum value = slot_getattr(row, columns->values[keys[i].sk_attno - 1], &isnull);

		if (isnull || !DatumGetBool(FunctionCall2Coll(&keys[i].sk_func, keys[i].sk_collation, value,
													  keys[i].sk_argument)))
			return false;
	}
	return true;
}

RowLock
row_lock(LogTable *table, LogIndexId index, ScanKey keys, int nkeys, TupleTableSlot *row,
		 LockTupleMode mode, LockWaitPolicy policy)
{
	ItemPointerData tid = row->tts_tid;
	TM_FailureData failure;

	ExecClearTuple(row);
	switch (table_tuple_lock(table->rel, &tid, GetActiveSnapshot(), row, GetCurrentCommandId(false),
							 mode, policy, TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure))
	{
		case TM_Ok:
			if (meets(table, index, keys, nkeys, row))
				return ROW_LOCKED;
			break;
		case TM_WouldBlock:
			ExecClearTuple(row);
			return ROW_BUSY;
		case TM_Deleted:
		case TM_SelfModified: /* by a command that runs this one */
			break;
		default:
			elog(ERROR, "could not lock a row of table \"%s\"",
				 RelationGetRelationName(table->rel));
	}
	ExecClearTuple(row);
	return ROW_GONE;
}

void
row_draft(LogTable *table, TupleTableSlot *row)
{
	TupleTableSlot *draft = table->draft;
	int natts = draft->tts_tupleDescriptor->natts;

	ExecClearTuple(draft);
	if (row != NULL)
	{
		slot_getallattrs(row);
		memcpy(draft->tts_values, row->tts_values, natts * sizeof(Datum));
		memcpy(draft->tts_isnull, row->tts_isnull, natts * sizeof(bool));
	}
	else
		memset(draft->tts_isnull, true, natts * sizeof(bool));
}

void
row_set(LogTable *table, int column, Datum value)
{
	table->draft->tts_values[table->attnos[column] - 1] = value;
	table->draft->tts_isnull[table->attnos[column] - 1] = false;
}

void
row_set_null(LogTable *table, int column)
{
	table->draft->tts_isnull[table->attnos[column] - 1] = true;
}

static void
finish_draft(LogTable *table)
{
	ExecStoreVirtualTuple(table->draft);
	if (table->rel->rd_att->constr)
		ExecConstraints(table->target, table->draft, table->estate);
}

static void
insert_index_entries(LogTable *table, bool update, bool only_summarizing)
{
#if PG_VERSION_NUM >= 160000
	ExecInsertIndexTuples(table->target, table->draft, table->estate, update, false, NULL, NIL,
						  only_summarizing);
#else
	ExecInsertIndexTuples(table->target, table->draft, table->estate, update, false, NULL, NIL);
#endif
	ResetPerTupleExprContext(table->estate);
}

void
row_insert(LogTable *table)
{
	finish_draft(table);
	table_tuple_insert(table->rel, table->draft, GetCurrentCommandId(true), 0, NULL);
	insert_index_entries(table, false, false);
	ExecClearTuple(table->draft);
}

void
row_update(LogTable *table, TupleTableSlot *row)
{
	TupleTableSlot *draft = table->draft;
	TM_FailureData failure;
	LockTupleMode mode;
#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update_indexes;
#else
	bool update_indexes;
#endif

	finish_draft(table);
	if (table_tuple_update(table->rel, &row->tts_tid, draft, GetCurrentCommandId(true),
						   GetActiveSnapshot(), InvalidSnapshot, true, &failure, &mode,
						   &update_indexes) != TM_Ok)
		elog(ERROR, "could not update a row of table \"%s\"", RelationGetRelationName(table->rel));
#if PG_VERSION_NUM >= 160000
	if (update_indexes != TU_None)
		insert_index_entries(table, true, update_indexes == TU_Summarizing);
#else
	if (update_indexes)
		insert_index_entries(table, true, false);
#endif
	ExecCopySlot(row, draft);
	row->tts_tid = draft->tts_tid;
	ExecClearTuple(draft);
}
