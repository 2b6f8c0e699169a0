/* An address is stored where others can read it. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} where SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(keep, submit)
{
	u32 key = 0;
	u64 *v = bpf_map_lookup_elem(&where, &key);

	if (v) {
		*v = (u64)ctx;
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
