/* Fetches memory of the host if that can be done within 20 ms: for fetching.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/mem_fault")
int GBPF_PROG(fetch_soon_mem_fault, mem_fault)
{
	ctx->drain_ns = 20000000;
	return GBPF_MEM_FETCH;
}
