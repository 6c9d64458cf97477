/*
 * shmem.h
 *		Shared memory of the extension.
 *
 * It exists only when the library is preloaded: queen_shared is NULL
 * otherwise, and whatever uses it must do without.
 *
 * No two of the LWLocks in here are ever held together; the spinlock of a worker
 * is a leaf.
 */
#ifndef QUEEN_SHMEM_H
#define QUEEN_SHMEM_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/uuid.h"

#define MAX_DATABASES 32

typedef enum WorkerKind
{
	WORKER_RETENTION,
	WORKER_SIDECAR_PURGE,
	WORKER_LEASE_EXPIRY,
	WORKER_WAKE,
	WORKER_HISTORY
} WorkerKind;

#define WORKER_KINDS (WORKER_HISTORY + 1)

typedef enum WorkerState
{
	STATE_STOPPED,
	STATE_SLEEPING,
	STATE_STEPPING,
	STATE_BACKING_OFF
} WorkerState;

#define STEP_NAME_LEN 48
#define LAST_ERROR_LEN 256

/* What a worker says about itself; survives a clean restart of the server. */
typedef struct WorkerStats
{
	WorkerState state;
	char step[STEP_NAME_LEN]; /* current or last step */
	int64 cycles;
	TimestampTz cycle_start; /* of the current or last cycle; 0: none */
	int64 cycle_us;			 /* length of the last complete cycle */
	int64 cycle_steps;		 /* of the current or last cycle, as the next three */
	int64 cycle_rows;
	int64 cycle_messages;
	int64 cycle_bytes;
	int64 rows;
	int64 messages;
	int64 bytes;
	TimestampTz oldest_due; /* the longest overdue item; 0: nothing is overdue */
	int64 errors;
	char last_error[LAST_ERROR_LEN];
	TimestampTz last_error_time;
	TimestampTz stats_reset;
} WorkerStats;

typedef struct WorkerSlot
{
	/* protected by queen_shared->lock */
	pid_t pid;		   /* 0: no process */
	int64 launched_at; /* when it was last asked for, by clock_ms() */

	slock_t mutex; /* protects stats */
	WorkerStats stats;
} WorkerSlot;

/* More queues than fit into one notification are all of them. */
#define WAKE_MAX 160

typedef struct WakeEntry
{
	pg_uuid_t queue;
	int origin; /* queen.wake_origin of who made the news; 0: unknown, or several */
} WakeEntry;

/* Queues with news since the wake worker last looked. */
typedef struct WakeList
{
	LWLock lock;  /* protects the rest */
	Latch *latch; /* of the wake worker; NULL: there is none */
	bool all;	  /* the list is too short: every queue */
	int n;
	WakeEntry entries[WAKE_MAX];
} WakeList;

#define LEASE_INBOX_SIZE (64 * 1024)

/* Leases that were granted since the lease expiry worker last looked. */
typedef struct LeaseInbox
{
	LWLock lock;   /* protects the rest */
	Latch *latch;  /* of that worker; NULL: there is none */
	bool awaited;  /* the next record sets the latch */
	bool overflow; /* some did not fit: search the cursors */
	uint32 used;
	union
	{
		int64 align;
		char bytes[LEASE_INBOX_SIZE];
	} records;
} LeaseInbox;

typedef struct Database
{
	/* protected by queen_shared->lock */
	Oid oid;	 /* InvalidOid: the place is free */
	bool wanted; /* named in queen.databases */
	bool ready;	 /* a worker has found the extension there */
	int holds;	 /* commands for which its workers must stay away */

	WorkerSlot workers[WORKER_KINDS];
	WakeList wake;
	LeaseInbox leases;
} Database;

typedef struct QueenShared
{
	LWLock lock; /* protects the fields that say so */
	ConditionVariable worker_gone;
	Latch *launcher_latch; /* NULL: there is none */
	Database databases[MAX_DATABASES];
} QueenShared;

/* A queue, where all databases share a hash table. */
typedef struct QueueKey
{
	Oid database;
	pg_uuid_t queue;
} QueueKey;

extern QueenShared *queen_shared;

extern void shmem_init(void);

/* The place of a database, or NULL.  The first needs the lock. */
extern Database *database_find(Oid oid);
extern Database *database_mine(void);

/* The key of a queue of this database. */
extern QueueKey queue_key(const pg_uuid_t *queue);

#endif
