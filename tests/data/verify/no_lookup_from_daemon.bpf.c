/* refuse: map: bpf_map_lookup_elem: each tenant has its own counts */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/tick") int GBPF_PROG(f, tick)
{
	u32 key = 0;
	u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count) {
		*count = 0;
	}
	return 0;
}

GBPF_LICENSE("GPL");
