/*
 * target.h
 *		The request target: path segments and query arguments.
 *
 * Works on the raw target, because a segment may hold an encoded slash:
 * the path is split first and decoded after.
 */
#ifndef QUEEN_TARGET_H
#define QUEEN_TARGET_H

#include "buf.h"

#define TARGET_MAX_SEGMENTS 10
#define TARGET_MAX_ARGS 16

typedef struct TargetArg
{
	Span name;
	Span value;
} TargetArg;

typedef struct Target
{
	int n_segments;
	bool trailing_slash; /* which may stand for an empty last segment */
	Span segments[TARGET_MAX_SEGMENTS];
	int n_args;
	TargetArg args[TARGET_MAX_ARGS];
	char *text; /* decoded bytes that the spans point into */
} Target;

/* NULL, or a text that says what is wrong with the target. */
extern const char *target_parse(Target *target, const char *raw);
extern void target_free(Target *target);

/* The first argument of that name; ptr NULL when there is none. */
extern Span target_arg(const Target *target, const char *name);

#endif
