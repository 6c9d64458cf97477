/*
 * work_notes.c
 *		What the current transaction will change in the work lists.
 *
 * One note per partition and group, the last one counts.  They live in the
 * transaction's memory context, like what pending.c keeps.
 *
 * Who pushes keeps the partition locked.  So a group that took a batch of it, or
 * gave one up, later in the transaction has seen all that there is: for it, the
 * push is no news.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "function.h"
#include "pending.h"
#include "shmem.h"
#include "wake.h"
#include "work_notes.h"
#include "worklist.h"

QUEEN_FUNCTION(stat_doubt);

typedef enum NoteKind
{
	NOTE_NOTHING,
	NOTE_WRITTEN, /* no group: all of the queue's */
	NOTE_READY,
	NOTE_LEASED,
	NOTE_DONE,
	NOTE_DOUBT /* no group, no partition */
} NoteKind;

typedef struct NoteKey
{
	pg_uuid_t queue;
	pg_uuid_t partition;
	uint64 group;
	int64 level; /* of the savepoint */
} NoteKey;

typedef struct Note
{
	NoteKey key; /* hash key */
	NoteKind kind;
	bool taken;		   /* off the list */
	uint64 order;	   /* of the kind, in the transaction */
	TimestampTz until; /* of a lease */
} Note;

static HTAB *notes; /* NULL: none */
static uint64 last_order;

static Note *
note_at(const NoteKey *key)
{
	bool found;
	Note *note = hash_search(notes, key, HASH_ENTER, &found);

	if (!found)
	{
		note->kind = NOTE_NOTHING;
		note->taken = false;
		note->order = 0;
	}
	return note;
}

static NoteKey
current_key(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition)
{
	NoteKey key;

	memset(&key, 0, sizeof(key));
	key.queue = *queue;
	key.group = group;
	if (partition != NULL)
		key.partition = *partition;
	key.level = GetCurrentTransactionNestLevel();
	return key;
}

/* The note of the current savepoint; NULL without shared memory. */
static Note *
current_note(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition)
{
	NoteKey key;

	if (queen_shared == NULL)
		return NULL;
	pending_start();
	if (notes == NULL)
	{
		HASHCTL info = {.keysize = sizeof(NoteKey), .entrysize = sizeof(Note)};

		info.hcxt = TopTransactionContext;
		notes = hash_create("queen work notes", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	key = current_key(queue, group, partition);
	return note_at(&key);
}

static Note *
take_note(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition, NoteKind kind)
{
	Note *note = current_note(queue, group, partition);

	if (note != NULL)
	{
		note->kind = kind;
		note->order = ++last_order;
	}
	return note;
}

void
note_written(const pg_uuid_t *queue, const pg_uuid_t *partition)
{
	take_note(queue, 0, partition, NOTE_WRITTEN);
}

void
note_lease_done(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition, bool more)
{
	take_note(queue, group, partition, more ? NOTE_READY : NOTE_DONE);
}

void
note_taken(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition)
{
	current_note(queue, group, partition)->taken = true;
}

void
note_returned(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition)
{
	NoteKey key = current_key(queue, group, partition);
	Note *note = hash_search(notes, &key, HASH_FIND, NULL);

	if (note != NULL && note->kind == NOTE_NOTHING)
		hash_search(notes, &key, HASH_REMOVE, NULL);
}

void
note_leased(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition, TimestampTz until,
			bool taken)
{
	Note *note = take_note(queue, group, partition, NOTE_LEASED);

	if (note == NULL)
		return;
	note->until = until;
	note->taken |= taken;
}

void
note_passed(const pg_uuid_t *queue, uint64 group, const pg_uuid_t *partition, bool more, bool taken)
{
	Note *note = take_note(queue, group, partition, more ? NOTE_READY : NOTE_DONE);

	if (note != NULL)
		note->taken |= taken;
}

void
note_doubt(const pg_uuid_t *queue)
{
	take_note(queue, 0, NULL, NOTE_DOUBT);
}

/* Whether the group has seen what the note says was written. */
static bool
has_seen(const void *written, uint64 group)
{
	const Note *note = written;
	NoteKey key = note->key;
	const Note *later;

	key.group = group;
	later = hash_search(notes, &key, HASH_FIND, NULL);
	return later != NULL && later->order > note->order;
}

static bool
is_news(const Note *note, uint64 group)
{
	switch (note->kind)
	{
		case NOTE_WRITTEN:
			return !has_seen(note, group);
		case NOTE_READY:
			return note->key.group == group;
		case NOTE_LEASED:
			return note->key.group == group && note->until < GetCurrentTimestamp();
		default:
			return false;
	}
}

int
own_news(const pg_uuid_t *queue, uint64 group, pg_uuid_t **partitions, bool *doubt)
{
	HASH_SEQ_STATUS scan;
	Note *note;
	int n = 0;

	*doubt = false;
	if (notes == NULL)
		return 0;
	*partitions = palloc(hash_get_num_entries(notes) * sizeof(pg_uuid_t));
	hash_seq_init(&scan, notes);
	while ((note = hash_seq_search(&scan)) != NULL)
	{
		if (memcmp(&note->key.queue, queue, sizeof(pg_uuid_t)) != 0)
			continue;
		*doubt |= note->kind == NOTE_DOUBT;
		if (is_news(note, group))
			(*partitions)[n++] = note->key.partition;
	}
	return n;
}

static void
apply(const Note *note)
{
	const NoteKey *key = &note->key;

	switch (note->kind)
	{
		case NOTE_NOTHING:
			break;
		case NOTE_WRITTEN:
			worklist_written(&key->queue, &key->partition, has_seen, note);
			break;
		case NOTE_READY:
			worklist_ready(&key->queue, key->group, &key->partition);
			break;
		case NOTE_LEASED:
			worklist_park(&key->queue, key->group, &key->partition, note->until, true);
			break;
		case NOTE_DONE:
			/* The poll that the news had woken met the lease, whoever's it was. */
			if (worklist_lease_done(&key->queue, key->group, &key->partition))
				wake_list_add(&key->queue, 0);
			break;
		case NOTE_DOUBT:
			worklist_doubt(&key->queue);
			break;
	}
}

static void
give_back(const Note *note)
{
	if (note->taken)
		worklist_ready(&note->key.queue, note->key.group, &note->key.partition);
}

void
work_notes_finish(bool commit)
{
	HASH_SEQ_STATUS scan;
	Note *note;

	if (notes == NULL)
		return;
	hash_seq_init(&scan, notes);
	while ((note = hash_seq_search(&scan)) != NULL)
		if (commit)
			apply(note);
		else
			give_back(note);
	notes = NULL;
}

/* Gives to the parent what a released savepoint has noted. */
void
work_notes_keep(int level)
{
	HASH_SEQ_STATUS scan;
	Note *note;

	if (notes == NULL)
		return;
	hash_seq_init(&scan, notes);
	while ((note = hash_seq_search(&scan)) != NULL)
		if (note->key.level == level)
		{
			Note ended = *note;
			Note *kept;

			hash_search(notes, &ended.key, HASH_REMOVE, NULL);
			ended.key.level--;
			kept = note_at(&ended.key);
			kept->kind = ended.kind;
			kept->order = ended.order;
			kept->until = ended.until;
			kept->taken |= ended.taken;
		}
}

void
work_notes_drop(int level)
{
	HASH_SEQ_STATUS scan;
	Note *note;

	if (notes == NULL)
		return;
	hash_seq_init(&scan, notes);
	while ((note = hash_seq_search(&scan)) != NULL)
		if (note->key.level >= level)
		{
			give_back(note);
			hash_search(notes, &note->key, HASH_REMOVE, NULL);
		}
}

/*
 * stat_doubt(queue_id uuid)
 */
Datum
stat_doubt(PG_FUNCTION_ARGS)
{
	note_doubt(PG_GETARG_UUID_P(0));
	PG_RETURN_VOID();
}
