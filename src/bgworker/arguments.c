/*
 * arguments.c
 *		Aligned arrays as arguments of a function.
 */
#include "postgres.h"

#include "utils/array.h"
#include "utils/lsyscache.h"

#include "arguments.h"

static int
take_apart(ArrayType *array, ArgumentArray *into)
{
	int16 len;
	bool by_value;
	char align;
	int n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &by_value, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, by_value, align, &into->values, &into->nulls,
					  &n);
	return n;
}

int
argument_arrays(FunctionCallInfo fcinfo, int n, ArgumentArray *arrays)
{
	int length = 0;

	for (int i = 0; i < n; i++)
	{
		int elements = PG_ARGISNULL(i) ? -1 : take_apart(PG_GETARG_ARRAYTYPE_P(i), &arrays[i]);

		if (elements < 0 || (i > 0 && elements != length))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument arrays must not be null and must have the same length")));
		length = elements;
	}
	return length;
}
