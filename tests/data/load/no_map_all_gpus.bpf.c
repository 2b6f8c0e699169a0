/* refuse: map counts: only gbpfd's programs can share a map of all GPUs */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_ALL_GPUS);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
