/* A histogram with 16 buckets for each power of two, so that percentiles are off by a 16th at most.
 * It is an array of u64 counters, with an instance for each multiprocessor: at any time most values
 * are in one bucket, and additions to one word wait for each other. `gbpf trace` knows the
 * numbering. Include gbpf.bpf.h before it. */
#ifndef GBPF_TRACERS_FINE_H
#define GBPF_TRACERS_FINE_H

#define FINE_BUCKETS 720 /* values below 2^48 */

#define FINE_HISTOGRAM(name)                                                                       \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_SM_ARRAY);                                                   \
		__uint(map_flags, GBPF_F_DEVICE);                                                  \
		__uint(max_entries, FINE_BUCKETS);                                                 \
		__type(key, u32);                                                                  \
		__type(value, u64);                                                                \
	} name SEC(".maps")

/* Returns the bucket of a value: 0 to 15 have one each; with e the place of its highest bit, a
 * larger one has the one that its four next bits choose in the 16 of e. */
static __always_inline u32 fine_bucket(u64 v)
{
	u64 top = v;
	u32 e = 0;

	if (v < 16) {
		return (u32)v;
	}
	if (v >> 48) {
		return FINE_BUCKETS - 1;
	}
	if (top >> 32) {
		top >>= 32;
		e += 32;
	}
	if (top >> 16) {
		top >>= 16;
		e += 16;
	}
	if (top >> 8) {
		top >>= 8;
		e += 8;
	}
	if (top >> 4) {
		top >>= 4;
		e += 4;
	}
	if (top >> 2) {
		top >>= 2;
		e += 2;
	}
	if (top >> 1) {
		e += 1;
	}
	return (e - 3) * 16 + ((u32)(v >> (e - 4)) & 15);
}

#endif
