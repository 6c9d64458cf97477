/*
 * arrays.h
 *		Array arguments.
 */
#ifndef QUEEN_ARRAYS_H
#define QUEEN_ARRAYS_H

#include "postgres.h"

#include "fmgr.h"

typedef struct ArrayArg
{
	Datum *values;
	bool *nulls;
} ArrayArg;

/* Takes one apart, and returns how many elements it has.  22023 when it is NULL. */
extern int array_arg(FunctionCallInfo fcinfo, int arg, ArrayArg *result);

/*
 * The same for the first "nargs" arguments, which are aligned: element i of each
 * describes entry i.  22023 also when their lengths differ.
 */
extern int array_args(FunctionCallInfo fcinfo, int nargs, ArrayArg *args);

#endif
