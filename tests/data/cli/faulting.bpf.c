/* For the scenario tests: mem_fault with the answer that the scenario sets, after a time. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

u32 answer;
u64 hold_ns, drain_ns, until_ns;

SEC("gbpf/mem_fault")
int GBPF_PROG(faulting_mem_fault, mem_fault)
{
	ctx->hold_ns = hold_ns;
	if (drain_ns) {
		ctx->drain_ns = drain_ns;
	}
	if (ctx->held_ns < until_ns) {
		return GBPF_MEM_HOLD;
	}
	gbpf_note(ctx->kernel, 1); /* an error if it is no number of a note */
	return answer == GBPF_MEM_FETCH	 ? GBPF_MEM_FETCH
	       : answer == GBPF_MEM_HOLD ? GBPF_MEM_HOLD
					 : GBPF_MEM_IN_PLACE;
}
