/* Counts the blocks of each kernel, the lanes that call its device functions, as a group and each
 * for itself, and is costly with that. */
#include <gbpf/gbpf.bpf.h>

enum { BLOCKS, LANES, EACH };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u64);
} calls SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(block, gdev_block_enter)
{
	u32 k = BLOCKS;
	u64 *n = bpf_map_lookup_elem(&calls, &k);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}

SEC("gdev/probe")
int GBPF_PROG(group, gdev_probe)
{
	u32 k = LANES;
	u64 *n = bpf_map_lookup_elem(&calls, &k);

	if (n) {
		__sync_fetch_and_add(n, ctx->lanes);
	}
	return 0;
}

SEC("gdev.lane/probe")
int GBPF_PROG(each, gdev_probe)
{
	u32 k = EACH;
	u64 *n = bpf_map_lookup_elem(&calls, &k);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
