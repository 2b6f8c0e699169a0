/* Programs inside kernels: of a warp, and of each lane. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 256);
	__uint(map_flags, GBPF_F_DEVICE);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

GBPF_DEVICE u64 total;

SEC("gdev/block_enter") int GBPF_PROG(blocks, gdev_block_enter)
{
	u32 sm = ctx->sm;
	u64 *count = bpf_map_lookup_elem(&counts, &sm);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("gdev.lane/enter/gemm*") int GBPF_PROG(lanes, gdev_enter)
{
	__sync_fetch_and_add(&total, ctx->lane);
	return 0;
}

GBPF_LICENSE("GPL");
