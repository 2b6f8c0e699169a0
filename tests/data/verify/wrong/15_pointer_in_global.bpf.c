/* A pointer is kept for the next call. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

GBPF_TENANT u64 *cached;

SEC("gbpf/submit") int GBPF_PROG(count, submit)
{
	u32 key = 0;

	if (!cached) {
		cached = bpf_map_lookup_elem(&counts, &key);
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
