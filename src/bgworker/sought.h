/*
 * sought.h
 *		Finds messages of a partition by their transaction ids.
 */
#ifndef QUEEN_SOUGHT_H
#define QUEEN_SOUGHT_H

#include "postgres.h"

#include "utils/uuid.h"

#include "rows.h"

/* A transaction id that is looked for. */
typedef struct Sought
{
	uint64 hash[2]; /* as its 16 bytes stand in memory */
	int64 offset;	/* where it was found, -1: not yet */
	int item;		/* of the caller */
} Sought;

typedef struct Search
{
	LogTable *txns;
	LogTable *segments;
	TupleTableSlot *txn;
	TupleTableSlot *segment;
	pg_uuid_t partition_id;
	Sought *sought; /* ascending by hash, equal ones included */
	int n;
	int missing; /* how many were not found */
} Search;

/* Opens the tables; one search at a time uses them. */
extern Search *search_open(void);
extern void search_close(Search *search);

/* Begins a search in one partition; sorts "sought". */
extern void search_begin(Search *search, const pg_uuid_t *partition_id, Sought *sought, int n);

/*
 * Each looks at the offsets after "after" up to "upto" and takes for an id
 * that was not found before the lowest of them; search_sidecar_back() takes any
 * of them up to "upto".  The segments are for where the sidecar is purged; those
 * that are corrupt are passed over.
 */
extern void search_segments(Search *search, int64 after, int64 upto);
extern void search_sidecar(Search *search, int64 after, int64 upto);
extern void search_sidecar_back(Search *search, int64 upto);

#endif
