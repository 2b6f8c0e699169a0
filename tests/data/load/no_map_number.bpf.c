/* refuse: map counts: member max_entries is not written with __uint() */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	u32 max_entries;
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
