/*
 * arrays.h
 *		Aligned array arguments: element i of each describes entry i.
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

/*
 * Takes the first "nargs" arguments apart, and returns how many elements each
 * has.  22023 when one is NULL or their lengths differ.
 */
extern int array_args(FunctionCallInfo fcinfo, int nargs, ArrayArg *args);

#endif
