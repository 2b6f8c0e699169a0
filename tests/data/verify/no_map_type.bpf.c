/* refuse: map counts: type 4 is not supported */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, 4);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key) != 0;
}

GBPF_LICENSE("GPL");
