/* Holds a launch that names memory of the host twice, and fetches then: for fetching.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/mem_fault")
int GBPF_PROG(hold_memory_mem_fault, mem_fault)
{
	if (ctx->asked < 2) {
		gbpf_note(0, 1);
		ctx->hold_ns = 100000;
		return GBPF_MEM_HOLD;
	}
	gbpf_note(1, 1);
	return GBPF_MEM_FETCH;
}
