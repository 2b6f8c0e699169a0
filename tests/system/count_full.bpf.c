/* Stores a key for each block, in a table that has room for a few. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 8);
	__type(key, u64);
	__type(value, u64);
} few SEC(".maps");

SEC("gdev/block_enter/scale")
int GBPF_PROG(enter, gdev_block_enter)
{
	u64 key = ctx->block;

	bpf_map_update_elem(&few, &key, &key, BPF_ANY);
	return 0;
}

GBPF_LICENSE("MIT");
