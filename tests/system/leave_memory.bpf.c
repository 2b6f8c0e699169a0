/* Leaves all memory of the host where it is: for fetching.bats. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/mem_fault")
int GBPF_PROG(leave_memory_mem_fault, mem_fault)
{
	return GBPF_MEM_IN_PLACE;
}
