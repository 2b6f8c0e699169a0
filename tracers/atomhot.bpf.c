/* atomhot: where atomic operations meet. Atomics on one address are executed one after the other, whatever warp they
 * come from. Counts, for each place, the operations of warps, their lanes, and the lanes of operations in which all lanes
 * have one address; and for each 512 bytes of global memory the operations and lanes. */
#include <gbpf/gbpf.bpf.h>

#include "regions.h"
#include "sites.h"

#define REGION_SHIFT 9 /* what allocators align to, so that a region has one allocation */

struct site {
	u64 count, lanes, same;
};

PLACE_MAP(struct site)

struct region {
	u64 count, mixed, owner, owners, squares, spread, lanes;
};

REGION_MAP(struct region)

SEC("gdev/access/*/atomic")
int GBPF_PROG(access, gdev_access)
{
	struct site *s = site_of(ctx->place);
	struct region *r;
	u32 lanes = ctx->lanes;

	if (s) {
		ADD(s->count, 1);
		ADD(s->lanes, lanes);
		if (ctx->stride == GBPF_STRIDE_SAME) {
			ADD(s->same, lanes);
		}
	}
	if (ctx->space != GBPF_SPACE_GLOBAL && ctx->space != GBPF_SPACE_GENERIC) {
		return 0;
	}
	r = region_of(ctx->addr, ctx->addr_high, REGION_SHIFT);
	if (r) {
		ADD(r->lanes, lanes);
	}
	return 0;
}

GBPF_LICENSE("MIT");
