/* refuse: map counts: maps of this type cannot lie in memory of the GPU */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_DEVICE);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
