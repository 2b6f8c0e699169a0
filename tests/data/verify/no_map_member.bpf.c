/* refuse: map counts: member pinning is not supported */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(pinning, 1);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key) != 0;
}

GBPF_LICENSE("GPL");
