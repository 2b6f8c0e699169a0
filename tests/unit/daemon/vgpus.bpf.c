/* What a policy learns of vGPUs, for test_vgpu_maps.c: init, admit and tick record it. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

GBPF_STANDARD_MAP(VSLICE_SET);
GBPF_STANDARD_MAP(MEMPOOL);
GBPF_STANDARD_MAP(IO_BUDGETS);
GBPF_STANDARD_MAP(PLACEMENT);

u32 init_compute; /* VSLICE_SET[0] when init ran */
struct {
	u64 mem_limit, mem_reserve, mem_used, mem_size, mem_free;
	u32 vgpu, compute, copy, burst, map_compute;
	s32 prio;
} admitted;
s64 place_of_0, place_of_1; /* gbpf_tenant_vgpu at the last tick */

static __always_inline u32 compute_at(u32 place)
{
	struct gbpf_vslice_set *v = bpf_map_lookup_elem(&VSLICE_SET, &place);

	return v ? v->compute_pct : 0;
}

SEC("gbpf/init")
int GBPF_PROG(vgpus_init, init)
{
	u32 place = 0;
	struct gbpf_vslice_set *v = bpf_map_lookup_elem(&VSLICE_SET, &place);

	init_compute = compute_at(0);
	if (v) {
		v->slice_us = 777;	/* the policy's own: stays */
		v->compute_pct = 99; /* gbpfd's: overwritten at the next change */
	}
	return 0;
}

SEC("gbpf/admit")
int GBPF_PROG(vgpus_admit, admit)
{
	admitted.vgpu = ctx->vgpu;
	admitted.mem_limit = ctx->mem_limit;
	admitted.mem_reserve = ctx->mem_reserve;
	admitted.mem_used = ctx->mem_used;
	admitted.mem_size = ctx->mem_size;
	admitted.mem_free = ctx->mem_free;
	admitted.compute = ctx->compute;
	admitted.copy = ctx->copy;
	admitted.prio = ctx->prio;
	admitted.burst = ctx->burst;
	admitted.map_compute = compute_at(ctx->vgpu);
	return GBPF_ADMIT;
}

SEC("gbpf/tick")
int GBPF_PROG(vgpus_tick, tick)
{
	place_of_0 = gbpf_tenant_vgpu(0);
	place_of_1 = gbpf_tenant_vgpu(1);
	return 0;
}
