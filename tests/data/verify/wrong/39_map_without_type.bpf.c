/* max_entries was forgotten. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(count, submit)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key) ? GBPF_GO : GBPF_HOLD;
}

GBPF_LICENSE("GPL");
