/*
 * histogram.h
 *		Latencies, counted in buckets whose width grows with the value.
 *
 * Each power of two is cut into 128 buckets, so that a percentile is at most
 * 0.8 % above the true value, from 1 microsecond to the largest.
 */
#ifndef QUEEN_BENCH_HISTOGRAM_H
#define QUEEN_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS 7
#define HISTOGRAM_OCTAVES 34 /* up to 2^40 microseconds */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_OCTAVES + 1) << HISTOGRAM_BITS)

typedef struct Histogram
{
	int64_t count;
	int64_t max;
	int64_t buckets[HISTOGRAM_BUCKETS];
} Histogram;

/* Negative values count as 0. */
extern void histogram_add(Histogram *histogram, int64_t us);

/* Largest value of the bucket that holds the given share (0..1) of all values, 0 when empty. */
extern int64_t histogram_quantile(const Histogram *histogram, double share);

#endif
