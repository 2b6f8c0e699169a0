/* The result of a lookup is used without looking whether there is one. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(count, submit)
{
	u32 key = ctx->queue;
	u64 *n = bpf_map_lookup_elem(&counts, &key);

	*n += 1;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
