/* A helper whose name is misspelled. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

extern long gbpf_tenant_clas(u64 tenant);

SEC("gbpf/tick")
int GBPF_PROG(unknown_tick, tick)
{
	return gbpf_tenant_clas(1) == 0;
}
