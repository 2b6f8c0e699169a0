/* Only queues and stacks can be pushed to. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} last SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(remember, submit)
{
	u64 now = ctx->now_ns;

	bpf_map_push_elem(&last, &now, 0);
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
