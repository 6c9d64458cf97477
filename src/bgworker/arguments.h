/*
 * arguments.h
 *		Aligned arrays as arguments of a function.
 */
#ifndef QUEEN_ARGUMENTS_H
#define QUEEN_ARGUMENTS_H

#include "postgres.h"

#include "fmgr.h"

typedef struct ArgumentArray
{
	Datum *values;
	bool *nulls;
} ArgumentArray;

/*
 * Takes the first "n" arguments apart and returns how many elements each has;
 * 22023 when one is NULL or they differ in length.
 */
extern int argument_arrays(FunctionCallInfo fcinfo, int n, ArgumentArray *arrays);

#endif
