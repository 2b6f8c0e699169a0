/* coalesce: which accesses to global memory waste bandwidth. Memory moves sectors of 32 bytes; a warp whose lanes read
 * neighbouring elements needs the fewest. Counts, for each place, the sectors that the warps' accesses were in, the
 * fewest that would have held as many bytes, and the strides of the lanes' addresses. */
#include <gbpf/gbpf.bpf.h>

#include "sites.h"

struct site {
	u64 count, sectors, ideal, same, unit, constant, mixed;
};

PLACE_MAP(struct site)

SEC("gdev/access")
int GBPF_PROG(access, gdev_access)
{
	u32 stride = ctx->stride;
	struct site *s;
	u64 bytes;

	if (ctx->space != GBPF_SPACE_GLOBAL && ctx->space != GBPF_SPACE_GENERIC) {
		return 0;
	}
	s = site_of(ctx->place);
	if (!s) {
		return 0;
	}
	bytes = stride == GBPF_STRIDE_SAME ? ctx->bytes : (u64)ctx->lanes * ctx->bytes;
	ADD(s->count, 1);
	ADD(s->sectors, ctx->sectors);
	ADD(s->ideal, (bytes + 31) / 32);
	ADD(*(stride == GBPF_STRIDE_SAME       ? &s->same
	      : stride == GBPF_STRIDE_UNIT     ? &s->unit
	      : stride == GBPF_STRIDE_CONSTANT ? &s->constant
					       : &s->mixed),
	    1);
	return 0;
}

GBPF_LICENSE("MIT");
