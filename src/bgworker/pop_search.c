/*
 * pop_search.c
 *		Finds the partitions that are worth a look.
 *
 * Mostly they are on the work list of the group.  After that come those that
 * this transaction itself has news of, which the list will have at its end when
 * it commits: nobody gets ahead by acknowledging and popping in one transaction.
 * A pop that finds both empty goes on with the walk that fills the list, if
 * something is missing, until it meets something, for a bounded number of steps;
 * otherwise each pop does a step of the walk while there is one.  Without a list
 * the tables are searched.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "pop.h"
#include "work_notes.h"

/* Partitions that one pop looks at. */
#define LOOKS_MAX 512

/* Steps of the walk that one pop does. */
#define STEPS_MAX 32

typedef enum SearchStage
{
	WORK_LIST,
	TABLES /* or, when there is doubt about the list, from the start */
} SearchStage;

typedef struct PopSearch
{
	Pop *pop;
	SearchStage stage;
	pg_uuid_t *found; /* of the own news, or by the search of the tables */
	int nfound;
	int next;
	bool taken;		 /* the last one came off the list */
	int steps;		 /* of the walk that this pop did */
	bool unfinished; /* the walk has not come to all that is missing */

	/* What another request might get: back on the list when this one is done. */
	pg_uuid_t held[LOOKS_MAX];
	int nheld;
	TimestampTz held_until;
} PopSearch;

/* Does a step of the walk, if one is due; true: look at the list again. */
static bool
walk_on(PopSearch *search)
{
	const PopRequest *request = &search->pop->request;
	Walk walk;
	bool complete;

	if (!worklist_walk(&request->queue_id, request->group_number, &walk, &complete) ||
		(complete && search->steps > 0))
		return false;
	if (search->steps == STEPS_MAX)
	{
		search->unfinished = true;
		return false;
	}
	search->steps++;
	CHECK_FOR_INTERRUPTS();
	if (pop_walk(request, &walk) && !walk.met)
		pop_advance_watermark(request, walk.began);
	return true;
}

static void
search_tables(PopSearch *search)
{
	search->stage = TABLES;
	search->nfound = pop_find(&search->pop->request, &search->found);
	search->next = 0;
}

static bool
next_found(PopSearch *search, pg_uuid_t *partition_id)
{
	search->taken = false;
	if (search->next == search->nfound)
		return false;
	*partition_id = search->found[search->next++];
	return true;
}

/* The next partition from the work list, then of the own news. */
static bool
next_listed(PopSearch *search, pg_uuid_t *partition_id)
{
	const PopRequest *request = &search->pop->request;

	for (;;)
		switch (worklist_take(&request->queue_id, request->group_number, partition_id))
		{
			case WORK_TAKEN:
				note_taken(&request->queue_id, request->group_number, partition_id);
				search->taken = true;
				return true;
			case WORK_NONE:
				if (next_found(search, partition_id))
					return true;
				if (!walk_on(search))
					return false;
				break;
			case WORK_NO_LIST:
				search_tables(search);
				return false;
		}
}

static bool
next_partition(PopSearch *search, pg_uuid_t *partition_id)
{
	if (search->stage == WORK_LIST && next_listed(search, partition_id))
		return true;
	return search->stage == TABLES && next_found(search, partition_id);
}

/* Gives back to the list what was not served. */
static void
give_back(PopSearch *search, const pg_uuid_t *partition_id, PopLook look)
{
	const PopRequest *request = &search->pop->request;

	if (look.outcome == POP_HELD)
	{
		search->held[search->nheld++] = *partition_id;
		search->held_until = Min(search->held_until, look.until);
		return;
	}
	if (look.outcome == POP_LATER)
		worklist_park(&request->queue_id, request->group_number, partition_id, look.until, false);
	note_returned(&request->queue_id, request->group_number, partition_id);
}

/* When something that is known may be deliverable. */
static TimestampTz
retry_at(const PopSearch *search)
{
	const PopRequest *request = &search->pop->request;
	TimestampTz next;

	if (search->stage == TABLES)
		return pop_retry_at(request);
	if (search->unfinished)
		return DT_NOBEGIN;
	next = worklist_next(&request->queue_id, request->group_number);
	return Min(next, search->held_until);
}

static void
give_back_held(PopSearch *search)
{
	const PopRequest *request = &search->pop->request;

	for (int i = 0; i < search->nheld; i++)
	{
		worklist_ready(&request->queue_id, request->group_number, &search->held[i]);
		note_returned(&request->queue_id, request->group_number, &search->held[i]);
	}
}

TimestampTz
pop_any(Pop *pop)
{
	PopSearch search = {.pop = pop, .stage = WORK_LIST, .held_until = DT_NOEND};
	const PopRequest *request = &pop->request;
	TimestampTz again = DT_NOEND;
	pg_uuid_t partition_id;
	bool doubt;

	search.nfound = own_news(&request->queue_id, request->group_number, &search.found, &doubt);
	if (doubt)
		search_tables(&search);
	for (int looks = 0; looks < LOOKS_MAX && pop->budget > 0 && pop->room > 0 && pop->places > 0 &&
						next_partition(&search, &partition_id);
		 looks++)
	{
		PopLook look = pop_look(pop, &partition_id, search.taken);

		CHECK_FOR_INTERRUPTS();
		if (search.taken && look.outcome != POP_SERVED)
			give_back(&search, &partition_id, look);
	}
	if (search.stage == WORK_LIST && search.steps == 0)
		walk_on(&search);
	if (pop->count.messages == 0)
		again = retry_at(&search);
	give_back_held(&search);
	if (search.stage == TABLES && pop->count.messages == 0)
		pop_advance_watermark(request, DT_NOEND);
	return again;
}
