/* The map's value has eight bytes, this one has four. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} last SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(remember, submit)
{
	u32 value = ctx->threads, key = ctx->queue;

	bpf_map_update_elem(&last, &key, &value, BPF_ANY);
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
