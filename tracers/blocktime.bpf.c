/* blocktime: how long blocks run. A block stores its time of begin in a slot of its own, and its end counts the
 * difference in a histogram. A slot is found by kernel and index of the block. Two launches of one kernel that run at
 * the same time have the same slots: a block whose slot another one has taken meanwhile is counted as lost, but for
 * one of the same index on the same multiprocessor, whose duration is that since the later begin. */
#include <gbpf/gbpf.bpf.h>

#include "fine.h"

#define SLOTS 65536
#define TIME_BITS 48 /* of the time; the other bits identify kernel and multiprocessor */
#define TIME_MASK ((1ULL << TIME_BITS) - 1)

#define PLACES 256    /* of the longest blocks */
#define BLOCK_BITS 28 /* of a place: the index; the duration is above it, so that the longer one is more */
#define BLOCK_MAX ((1ULL << BLOCK_BITS) - 1)
#define NS_MAX ((1ULL << (64 - BLOCK_BITS)) - 1)

enum { LOST, LATE, SUM_NS, FIGURES };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, SLOTS);
	__type(key, u32);
	__type(value, u64);
} begins SEC(".maps");

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

static __always_inline u64 *slot(u64 kernel, u64 block)
{
	u32 k = (u32)(kernel + block) % SLOTS;

	return bpf_map_lookup_elem(&begins, &k);
}

/* Never 0, which is an empty slot. */
static __always_inline u64 tag(u64 kernel, u32 sm)
{
	return ((kernel >> 32 ^ sm * 0x9e37) | 1) << TIME_BITS;
}

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

SEC("gdev/block_enter")
int GBPF_PROG(begin, gdev_block_enter)
{
	u64 *s = slot(ctx->kernel, ctx->block);

	if (s) {
		*s = tag(ctx->kernel, ctx->sm) | (ctx->time_ns & TIME_MASK);
	}
	return 0;
}

SEC("gdev/block_exit")
int GBPF_PROG(end, gdev_block_exit)
{
	u64 *s = slot(ctx->kernel, ctx->block), was, ns;
	u32 k;

	if (!s) {
		return 0;
	}
	was = __sync_lock_test_and_set(s, 0);
	if ((was & ~TIME_MASK) != tag(ctx->kernel, ctx->sm)) {
		add(LOST, 1);
		return 0;
	}
	ns = (ctx->end_ns - was) & TIME_MASK;
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
