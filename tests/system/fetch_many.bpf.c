/* Fetches memory of the host for launches that name more than 40 MiB, if that can be done within 20
 * ms: for fetching.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/mem_fault")
int GBPF_PROG(fetch_many_mem_fault, mem_fault)
{
	ctx->drain_ns = 20000000;
	return ctx->bytes > (40u << 20) ? GBPF_MEM_FETCH : GBPF_MEM_IN_PLACE;
}
