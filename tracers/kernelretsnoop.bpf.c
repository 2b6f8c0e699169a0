/* kernelretsnoop: when warps return. Counts, in a histogram, the time from the begin of a launch's first block to each
 * return of a warp, or of some of its lanes: a few late warps that a whole launch waits for show as its tail. The begin
 * is kept by kernel, so of launches of one kernel that run at the same time the latest begin counts. */
#include <gbpf/gbpf.bpf.h>

#include "fine.h"

#define KERNELS 4096

enum { MISSING, LOST, FIGURES }; /* MISSING: lanes of the returns that are fewer than 32 */

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, KERNELS);
	__type(key, u32);
	__type(value, u64);
} begins SEC(".maps");

struct {
	__uint(type, GBPF_MAP_SM_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, FIGURES);
	__type(key, u32);
	__type(value, u64);
} figures SEC(".maps");

FINE_HISTOGRAM(returns);

static __always_inline u64 *begin_of(u64 kernel)
{
	u32 k = (u32)(kernel ^ kernel >> 32) % KERNELS;

	return bpf_map_lookup_elem(&begins, &k);
}

static __always_inline void add(u32 k, u64 n)
{
	u64 *v = bpf_map_lookup_elem(&figures, &k);

	if (v) {
		__sync_fetch_and_add(v, n);
	}
}

SEC("gdev/block_enter")
int GBPF_PROG(begin, gdev_block_enter)
{
	u64 *t = ctx->block == 0 ? begin_of(ctx->kernel) : NULL;

	if (t) {
		*t = ctx->time_ns;
	}
	return 0;
}

SEC("gdev/exit")
int GBPF_PROG(leave, gdev_exit)
{
	u64 *t = begin_of(ctx->kernel), *n, since;
	u32 k;

	if (!t) {
		return 0;
	}
	since = *t;
	if (!since || ctx->time_ns < since) {
		add(LOST, 1);
		return 0;
	}
	k = fine_bucket(ctx->time_ns - since);
	n = bpf_map_lookup_elem(&returns, &k);
	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	if (ctx->lanes != 32) {
		add(MISSING, 32 - ctx->lanes);
	}
	return 0;
}

GBPF_LICENSE("MIT");
