/* For the part pair of `gbpf bench memory`: memory of a virtual GPU with a reservation stays on the
 * device, or comes back first; others use theirs in place as long as there is no room. A more
 * important one gives nothing to a less important one. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

GBPF_STANDARD_MAP(MEMPOOL);

enum { FETCHES, IN_PLACE }; /* numbers of gbpf_note() */

SEC("gbpf/reclaim")
int GBPF_PROG(keep_reclaim, reclaim)
{
	return ctx->prio > ctx->for_prio ? 0 : (int)(ctx->above >> 20 & 0xfffff); /* MiB */
}

SEC("gbpf/mem_fault")
int GBPF_PROG(keep_mem_fault, mem_fault)
{
	u32 place = ctx->vgpu;
	const struct gbpf_mempool *own = bpf_map_lookup_elem(&MEMPOOL, &place);

	if (ctx->missing <= ctx->room || (own && own->reserve_bytes)) {
		gbpf_note(FETCHES, 1);
		return GBPF_MEM_FETCH;
	}
	gbpf_note(IN_PLACE, 1);
	return GBPF_MEM_IN_PLACE;
}
