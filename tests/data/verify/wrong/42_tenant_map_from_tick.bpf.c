/* Each tenant has its own map; gbpfd must say whose it means. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} usage SEC(".maps");

SEC("gbpf/tick") int GBPF_PROG(reset, tick)
{
	u32 key = 0;
	u64 *n = bpf_map_lookup_elem(&usage, &key);

	if (n) {
		*n = 0;
	}
	return 0;
}

GBPF_LICENSE("GPL");
