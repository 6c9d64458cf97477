/*
 * arrays.c
 *		Aligned array arguments: element i of each describes entry i.
 */
#include "postgres.h"

#include "utils/array.h"
#include "utils/lsyscache.h"

#include "arrays.h"

static int
array_arg(FunctionCallInfo fcinfo, int arg, ArrayArg *result)
{
	ArrayType *array = PG_GETARG_ARRAYTYPE_P(arg);
	int16 len;
	bool byval;
	char align;
	int n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &result->values,
					  &result->nulls, &n);
	return n;
}

int
array_args(FunctionCallInfo fcinfo, int nargs, ArrayArg *args)
{
	int n = 0;

	for (int i = 0; i < nargs; i++)
	{
		int length = PG_ARGISNULL(i) ? -1 : array_arg(fcinfo, i, &args[i]);

		if (i == 0)
			n = length;
		if (length < 0 || length != n)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument arrays must not be null and must have the same length")));
	}
	return n;
}
