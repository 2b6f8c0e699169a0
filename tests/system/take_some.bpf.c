/* Lets 48 MiB of each vGPU be taken for a call, and nothing of one that is more important, for
 * reclaim.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/reclaim")
int GBPF_PROG(take_some, reclaim)
{
	if (ctx->mem_used != ctx->mem_reserve + ctx->above || ctx->vgpu == ctx->for_vgpu || !ctx->need ||
	    ctx->attempts > 1) {
		return 1 << 20; /* a fault: all is taken */
	}
	return ctx->prio > ctx->for_prio ? 0 : 48;
}
