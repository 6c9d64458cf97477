/*
 * push_targets.h
 *		Messages that are stored together, by partition, as a call takes them.
 */
#ifndef QUEEN_PUSH_TARGETS_H
#define QUEEN_PUSH_TARGETS_H

#include "message.h"
#include "packer.h"

#include <uthash.h>

struct Worker;

/* The messages of one partition, in their order. */
typedef struct PushTarget
{
	struct PushTarget *next;
	UT_hash_handle hh;
	uint8_t identity[16]; /* hash of the following */
	Uuid tenant;
	Span queue, partition;
	PushItem **items;
	size_t n, cap;
	size_t sent;  /* of them, in the last call */
	bool encrypt; /* the database has refused clear text */
	int attempt;  /* the caller's */
} PushTarget;

typedef struct PushSegment
{
	PushTarget *target;
	size_t first; /* of its messages */
} PushSegment;

typedef struct Targets
{
	PushTarget *list, *last; /* in the order of their first messages */
	PushTarget *by_identity; /* the same as a hash table */
	PushSegment *segments;	 /* of the last call */
	size_t n_segments, segments_cap;
} Targets;

extern void targets_free(Targets *targets);

/* Adds a message that has its ids. */
extern void targets_add(Targets *targets, const Uuid *tenant, Span queue, Span partition,
						PushItem *item);

/*
 * Packs the target's first messages into as many segments as the caps make of them,
 * and notes them in targets->segments.  False when there is no memory.
 */
extern bool targets_pack(Targets *targets, PushTarget *target, size_t count, struct Worker *worker,
						 SegmentColumns *columns);

#endif
