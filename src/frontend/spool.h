/*
 * spool.h
 *		Pushed messages that wait on disk for the database.
 *
 * One per process, in a directory that no other process uses.  A message is
 * spooled when the database cannot be reached, when the outcome of its
 * transaction is unknown, while pushes are under maintenance, and while
 * earlier messages of its partition are spooled: so order is kept.  It is
 * flushed to disk before it is answered.  What is spooled is stored again by
 * drain.c, in the order in which it came, with its message id.
 */
#ifndef QUEEN_SPOOL_H
#define QUEEN_SPOOL_H

#include "fusion.h"
#include "spoolfile.h"

struct Conf;
struct Worker;

/*
 * Opens the directory, creating it if need be, and finds what a process before
 * left there.  When that fails there is no spool, and a warning says why.
 */
extern void spool_open(const struct Conf *conf);

/* After the workers have ended: what is not stored stays for the next process. */
extern void spool_close(void);

/* Whether there is one that takes messages; cheap. */
extern bool spool_available(void);

/* Messages of the partition that are spooled: a new one comes behind them.  Cheap when none are. */
extern long long spool_count(const Uuid *tenant, Span queue, Span partition);

/*
 * Spools a message.  It ends with fusion_spooled() in the worker's thread, after the
 * flush.  False when there is no room, or no spool.
 */
extern bool spool_add(struct Worker *worker, const Uuid *tenant, Span queue, Span partition,
					  PushItem *item);

typedef struct SpoolState
{
	long long pending;		/* messages */
	long long failed;		/* messages set aside: the database refused them */
	long long failed_files; /* that hold these */
	long long failed_bytes;
	bool healthy; /* the last write to disk succeeded */
} SpoolState;

extern SpoolState spool_state(void);

/* --- for drain.c, from one thread --- */

#define SPOOL_NAME_SIZE 40

/* A file to replay, mapped; the oldest one. */
typedef struct SpoolSource
{
	const uint8_t *file;
	size_t size;
	uint64_t offset; /* of the next record to read */
	int fd;
	char name[SPOOL_NAME_SIZE];
} SpoolSource;

/* False when nothing is spooled. */
extern bool spool_source_open(SpoolSource *source);

/* Everything before "offset" is stored. */
extern void spool_source_progress(SpoolSource *source, uint64_t offset);

/* The whole file is stored. */
extern void spool_source_remove(SpoolSource *source);

/* Closes it for now, to be opened again. */
extern void spool_source_close(SpoolSource *source);

/* The record was stored, or is "refused" for good. */
extern void spool_record_done(const SpoolRecord *record, bool refused);

#endif
