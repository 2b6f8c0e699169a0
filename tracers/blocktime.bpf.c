/* blocktime: how long blocks run, as a histogram, and which of them run longest. Blocks whose times are none, since the
 * clock was set back, are counted as lost. */
#include <gbpf/gbpf.bpf.h>

#include "fine.h"

#define PLACES 256    /* of the longest blocks */
#define BLOCK_BITS 28 /* of a place: the index; the duration is above it, so that the longer one is more */
#define BLOCK_MAX ((1ULL << BLOCK_BITS) - 1)
#define NS_MAX ((1ULL << (64 - BLOCK_BITS)) - 1)

enum { LOST, LATE, SUM_NS, FIGURES };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, FIGURES);
	__type(key, u32);
	__type(value, u64);
} figures SEC(".maps");

/* The longest block of those whose index modulo PLACES is that of the place. */
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, PLACES);
	__type(key, u32);
	__type(value, u64);
} longest SEC(".maps");

FINE_HISTOGRAM(durations);

static __always_inline void add(u32 k, u64 n)
{
	u64 *v = bpf_map_lookup_elem(&figures, &k);

	if (v) {
		__sync_fetch_and_add(v, n);
	}
}

/* Each round that fails has found a longer one stored. */
static __always_inline void store_longest(u64 block, u64 ns)
{
	u32 k = (u32)block % PLACES;
	u64 *v = bpf_map_lookup_elem(&longest, &k);
	u64 was, is;

	if (!v) {
		return;
	}
	is = (ns < NS_MAX ? ns : NS_MAX) << BLOCK_BITS | (block < BLOCK_MAX ? block : BLOCK_MAX);
	was = *v;
	for (int i = 0; i < 4; i++) {
		u64 now;

		if (is <= was) {
			return;
		}
		now = __sync_val_compare_and_swap(v, was, is);
		if (now == was) {
			return;
		}
		was = now;
	}
}

SEC("gdev/block_exit")
int GBPF_PROG(end, gdev_block_exit)
{
	u64 *s, begin = ctx->begin_ns, end = ctx->end_ns, ns = end - begin;
	u32 k;

	if (!begin || begin > end) {
		add(LOST, 1);
		return 0;
	}
	k = fine_bucket(ns);
	s = bpf_map_lookup_elem(&durations, &k);
	if (s) {
		__sync_fetch_and_add(s, 1);
	}
	add(SUM_NS, ns);
	if (ctx->late) {
		add(LATE, 1);
	}
	store_longest(ctx->block, ns);
	return 0;
}

GBPF_LICENSE("MIT");
