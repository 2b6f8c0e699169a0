/* Two lookups, one check, and it is of the other one. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} before SEC(".maps");
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} after SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(copy, submit)
{
	u32 key = ctx->queue;
	u64 *from = bpf_map_lookup_elem(&before, &key);
	u64 *to = bpf_map_lookup_elem(&after, &key);

	if (!from) {
		return GBPF_GO;
	}
	*to = 1;
	*from = 0;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
