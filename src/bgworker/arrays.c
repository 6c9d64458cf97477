/*
 * arrays.c
 *		Array arguments.
 */
#include "postgres.h"

#include "utils/array.h"
#include "utils/lsyscache.h"

#include "arrays.h"

static void
check_arrays(bool valid)
{
	if (!valid)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument arrays must not be null and must have the same length")));
}

int
array_arg(FunctionCallInfo fcinfo, int arg, ArrayArg *result)
{
	ArrayType *array;
	int16 len;
	bool byval;
	char align;
	int n;

	check_arrays(!PG_ARGISNULL(arg));
	array = PG_GETARG_ARRAYTYPE_P(arg);
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &result->values,
					  &result->nulls, &n);
	return n;
}

int
array_args(FunctionCallInfo fcinfo, int nargs, ArrayArg *args)
{
	int n = array_arg(fcinfo, 0, &args[0]);

	for (int i = 1; i < nargs; i++)
		check_arrays(array_arg(fcinfo, i, &args[i]) == n);
	return n;
}
