/* refuse: map counts: deferred additions are not visible while the kernel runs */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_SM_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_DEVICE | GBPF_F_HOST | GBPF_F_DEFER);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
