/*
 * fail_alloc.h
 *		Makes one chosen allocation fail (linked with --wrap).
 *
 * A test runs its code with fail_alloc_at(1), (2), ... until a run ends in
 * which no allocation failed: then every allocation of that code has failed
 * once.
 */
#ifndef FAIL_ALLOC_H
#define FAIL_ALLOC_H

#include <stdbool.h>

/* The n-th allocation from now on fails, once; 0: none. */
extern void fail_alloc_at(long n);

/* Ends the failing; true when an allocation had failed. */
extern bool fail_alloc_end(void);

#endif
