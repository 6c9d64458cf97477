/*
 * work_notes.h
 *		What the current transaction will change in the work lists.
 *
 * It takes effect when the transaction commits.  A partition that a pop took off
 * a list goes back when the transaction, or the savepoint, is rolled back.
 */
#ifndef QUEEN_WORK_NOTES_H
#define QUEEN_WORK_NOTES_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* Messages were pushed. */
extern void note_written(const pg_uuid_t *queue, const pg_uuid_t *partition);

/* A lease ended, by an acknowledgement or otherwise; "more": messages wait behind the cursor. */
extern void note_lease_done(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition,
							bool more);

/* A pop took the partition off the list, and gave it back or found nothing in it. */
extern void note_taken(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition);
extern void note_returned(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition);

/* A pop leased a batch, or passed it; "taken": it had the partition from the list. */
extern void note_leased(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition,
						TimestampTz until, bool taken);
extern void note_passed(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition, bool more,
						bool taken);

/* Cursors or settings of the queue changed by other means. */
extern void note_doubt(const pg_uuid_t *queue);

/*
 * Partitions with news of this transaction, of which the list does not know yet;
 * "doubt": it has changed more than that.
 */
extern int own_news(const pg_uuid_t *queue, uint64 group, pg_uuid_t **partitions, bool *doubt);

/* For pending.c: the transaction or the savepoint of that level ends. */
extern void work_notes_finish(bool commit);
extern void work_notes_keep(int level);
extern void work_notes_drop(int level);

#endif
