/* Buckets of the duration histograms on the statistics page. */
#include "proto/pages.h"

unsigned proto_hist_bucket(uint64_t ns)
{
	unsigned log, bucket;

	if (ns < PROTO_HIST_SUB) {
		return (unsigned)ns;
	}
	log = 63u - (unsigned)__builtin_clzll(ns);
	bucket = (log - 2) * PROTO_HIST_SUB + (unsigned)((ns >> (log - 3)) & (PROTO_HIST_SUB - 1));
	return MIN(bucket, PROTO_HIST_BUCKETS - 1);
}

uint64_t proto_hist_floor(unsigned bucket)
{
	unsigned log = bucket / PROTO_HIST_SUB + 2;

	if (bucket < PROTO_HIST_SUB) {
		return bucket;
	}
	return ((uint64_t)PROTO_HIST_SUB + bucket % PROTO_HIST_SUB) << (log - 3);
}
