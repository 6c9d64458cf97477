/*
 * histogram.c
 *		Latencies, counted in buckets whose width grows with the value.
 *
 * Values below 2^BITS have buckets of their own; of a larger one the BITS bits
 * after the leading bit choose the bucket.
 */
#include "histogram.h"

#define SUBBUCKETS (INT64_C(1) << HISTOGRAM_BITS)

static int
bucket_of(int64_t us)
{
	int octave = us < SUBBUCKETS ? 0 : 64 - HISTOGRAM_BITS - __builtin_clzll((uint64_t) us);

	if (octave == 0)
		return (int) us;
	return (int) (octave * SUBBUCKETS + (us >> (octave - 1)) - SUBBUCKETS);
}

static int64_t
largest_of(int bucket)
{
	int octave = bucket >> HISTOGRAM_BITS;
	int64_t low = bucket & (SUBBUCKETS - 1);

	if (octave == 0)
		return low;
	return ((SUBBUCKETS + low + 1) << (octave - 1)) - 1;
}

void
histogram_add(Histogram *histogram, int64_t us)
{
	const int64_t limit = largest_of(HISTOGRAM_BUCKETS - 1);

	us = us < 0 ? 0 : us;
	histogram->count++;
	histogram->max = us > histogram->max ? us : histogram->max;
	histogram->buckets[bucket_of(us < limit ? us : limit)]++;
}

int64_t
histogram_quantile(const Histogram *histogram, double share)
{
	double wanted = share * (double) histogram->count;
	int64_t seen = 0;

	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
	{
		seen += histogram->buckets[i];
		if (seen > 0 && (double) seen >= wanted)
			return largest_of(i) < histogram->max ? largest_of(i) : histogram->max;
	}
	return 0;
}
