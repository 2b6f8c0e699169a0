/* Counts the blocks of each kernel as they end. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} blocks SEC(".maps");

SEC("gdev/block_exit")
int GBPF_PROG(count, gdev_block_exit)
{
	u32 k = 0;
	u64 *n = bpf_map_lookup_elem(&blocks, &k);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	k = 1;
	n = bpf_map_lookup_elem(&blocks, &k);
	if (n) {
		__sync_fetch_and_add(n, ctx->block);
	}
	return 0;
}

GBPF_LICENSE("MIT");
