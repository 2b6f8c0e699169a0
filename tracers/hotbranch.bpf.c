/* hotbranch: which branches divide warps. Counts, for each conditional branch, how often warps come to it, how often
 * some of their lanes take it and others do not, so that both ways are executed one after the other, and how many lanes
 * take it. */
#include <gbpf/gbpf.bpf.h>

#include "sites.h"

struct site {
	u64 count, lanes, taken, divergent;
};

PLACE_MAP(struct site)

static __always_inline u32 bits(u32 n)
{
	n = n - (n >> 1 & 0x55555555);
	n = (n & 0x33333333) + (n >> 2 & 0x33333333);
	return ((n + (n >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
}

SEC("gdev/branch")
int GBPF_PROG(branch, gdev_branch)
{
	struct site *s = site_of(ctx->place);
	u32 taken = bits(ctx->taken);

	if (!s) {
		return 0;
	}
	ADD(s->count, 1);
	ADD(s->lanes, ctx->lanes);
	ADD(s->taken, taken);
	ADD(s->divergent, taken && taken != ctx->lanes);
	return 0;
}

GBPF_LICENSE("MIT");
