/*
 * fail_alloc.c
 *		Makes one chosen allocation fail (linked with --wrap).
 */
#include "fail_alloc.h"

#include <stddef.h>

static long countdown; /* allocations until the failing one; 0: none fails */
static bool failed;

extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t count, size_t size);
extern void *__real_realloc(void *old, size_t size);
extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t count, size_t size);
extern void *__wrap_realloc(void *old, size_t size);

void
fail_alloc_at(long n)
{
	countdown = n;
	failed = false;
}

bool
fail_alloc_end(void)
{
	countdown = 0;
	return failed;
}

static bool
fails_now(void)
{
	if (countdown == 0 || --countdown > 0)
		return false;
	failed = true;
	return true;
}

void *
__wrap_malloc(size_t size)
{
	return fails_now() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __real_calloc(count, size);
}

void *
__wrap_realloc(void *old, size_t size)
{
	return fails_now() ? NULL : __real_realloc(old, size);
}
