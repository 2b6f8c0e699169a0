/* Counts blocks, with an array on the stack at a place that is not constant: the form calls it. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} blocks SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(count, gdev_block_enter)
{
	volatile u64 kept[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	u32 k = 0;
	u64 *n = bpf_map_lookup_elem(&blocks, &k);

	if (n) {
		__sync_fetch_and_add(n, kept[ctx->block & 7]);
	}
	return 0;
}

GBPF_LICENSE("MIT");
