/*
 * rows.h
 *		Reads, locks and writes rows of the extension's tables without SQL.
 *
 * What a statement does by itself is the caller's to do here:
 *
 *	- Reads see the active snapshot.  The first statement of a procedure, and
 *	  each that has to see what an earlier one wrote, or what a lock's last
 *	  holder committed, begins with rows_statement().
 *	- A row is written once per statement; the next statement may write it again.
 *	- Rows of one kind are locked in the order that all take: ascending by key.
 *	- No foreign key is checked.  Who inserts a row that refers to another, or
 *	  changes such a column, keeps that one from going: it has locked it with
 *	  LockTupleKeyShare or more in this transaction, and found that it exists.
 *	  Who changes no column of a key has nothing to do.
 *	- No trigger fires; a table that has any of the user's cannot be opened to
 *	  write.
 */
#ifndef QUEEN_ROWS_H
#define QUEEN_ROWS_H

#include "postgres.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "executor/tuptable.h"
#include "nodes/lockoptions.h"

#include "tables.h"

typedef enum RowLock
{
	ROW_LOCKED,
	ROW_GONE, /* deleted, or its key is another one now */
	ROW_BUSY  /* held by another session, and not waited for */
} RowLock;

/*
 * Begins the first statement of a call: pushes a snapshot.  PopActiveSnapshot()
 * ends the last one.
 */
extern void rows_begin(void);

/* Ends a statement and begins the next: its snapshot replaces the active one. */
extern void rows_statement(void);

/* A slot for rows of the table; ExecDropSingleTupleTableSlot() frees it. */
extern TupleTableSlot *row_slot(LogTable *table);

/* A column of a row; the attribute stays valid while the slot holds the row. */
static inline Datum
row_get(const LogTable *table, TupleTableSlot *row, int column, bool *isnull)
{
	return slot_getattr(row, table->attnos[column], isnull);
}

/* The same for a column that is NOT NULL. */
static inline Datum
row_value(const LogTable *table, TupleTableSlot *row, int column)
{
	bool isnull;

	return slot_getattr(row, table->attnos[column], &isnull);
}

/*
 * A condition on a column of an index, which counts from 1.  "strategy" is
 * BTEqualStrategyNumber and the like.
 */
extern void row_key(ScanKey key, LogTable *table, LogIndexId index, int column,
					StrategyNumber strategy, Datum value);

/*
 * A scan of the rows that meet the conditions, of which there are one or more
 * on the index's first columns, in their order.  index_getnext_slot() goes
 * through it in either direction, index_endscan() ends it.
 */
extern IndexScanDesc row_scan(LogTable *table, LogIndexId index, ScanKey keys, int nkeys);

/* Fetches the first such row.  False: there is none, and the slot is empty. */
extern bool row_find(LogTable *table, LogIndexId index, ScanKey keys, int nkeys,
					 TupleTableSlot *row);

/*
 * Locks the row that was found by these keys at row->tts_tid, under the active
 * snapshot or one that is still registered, and fetches its latest version.
 * Under LockWaitSkip it never waits, else lock_timeout bounds the wait.  The
 * slot is empty unless the row is locked.
 */
extern RowLock row_lock(LogTable *table, LogIndexId index, ScanKey keys, int nkeys,
						TupleTableSlot *row, LockTupleMode mode, LockWaitPolicy policy);

/*
 * Writing takes three steps: a draft, which is a copy of "row" or, for NULL,
 * a row of NULLs (no defaults); values for some columns; the row itself.  The
 * draft does not copy values: they have to stay until it is written.
 */
extern void row_draft(LogTable *table, TupleTableSlot *row);
extern void row_set(LogTable *table, int column, Datum value);
extern void row_set_null(LogTable *table, int column);

/* Inserts the draft.  A key that exists raises 23505. */
extern void row_insert(LogTable *table);

/* Makes the draft the new version of "row", which the caller has locked, and puts it there. */
extern void row_update(LogTable *table, TupleTableSlot *row);

#endif
