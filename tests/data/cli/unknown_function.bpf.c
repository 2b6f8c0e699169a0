/* A function that no object defines. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

extern int is_my_business(u64 tenant);

static __noinline int deeper(u64 tenant)
{
	return is_my_business(tenant) + 1;
}

SEC("gbpf/tick")
int GBPF_PROG(unknown_tick, tick)
{
	return deeper(ctx->tenants) == 0;
}
