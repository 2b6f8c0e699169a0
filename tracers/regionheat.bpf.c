/* regionheat: which parts of global memory kernels use. Counts, for each region, the accesses of warps, those that write
 * and those that are atomic, and the sectors of 32 bytes that they touch. */
#include <gbpf/gbpf.bpf.h>

#include "regions.h"
#include "sites.h"

const volatile u32 region_shift = 21; /* 2 MiB; `gbpf trace --region` changes it */

struct region {
	u64 count, mixed, owner, owners, squares, spread, writes, atomics, bulk, sectors;
};

REGION_MAP(struct region)

SEC("gdev/access")
int GBPF_PROG(access, gdev_access)
{
	u32 op = ctx->op;
	struct region *r;

	if (ctx->space != GBPF_SPACE_GLOBAL && ctx->space != GBPF_SPACE_GENERIC) {
		return 0;
	}
	r = region_of(ctx->addr, ctx->addr_high, region_shift & 63);
	if (!r) {
		return 0;
	}
	ADD(r->sectors, ctx->sectors);
	if (op == GBPF_ACCESS_STORE) {
		ADD(r->writes, 1);
	} else if (op == GBPF_ACCESS_ATOMIC) {
		ADD(r->atomics, 1);
	} else if (op == GBPF_ACCESS_BULK) {
		ADD(r->bulk, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
