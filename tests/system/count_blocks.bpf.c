/* Counts the blocks of each kernel, and remembers the highest index. */
#include <gbpf/gbpf.bpf.h>

#ifndef PLACE
#define PLACE GBPF_F_DEVICE
#endif

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, PLACE);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} blocks SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(count, gdev_block_enter)
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
