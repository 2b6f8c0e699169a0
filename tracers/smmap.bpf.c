/* smmap: where work runs. Counts, for each multiprocessor, the blocks that began on it, their warps and the lanes of
 * these that exist, so that one sees multiprocessors that get less than others: grids with a rest, few blocks, streams
 * with a share of the GPU. */
#include <gbpf/gbpf.bpf.h>

#define SMS 256

struct sm {
	u64 blocks, warps, lanes;
} __attribute__((aligned(128))); /* multiprocessors do not share a line of L2 */

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, SMS);
	__type(key, u32);
	__type(value, struct sm);
} sms SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(block, gdev_block_enter)
{
	u32 k = ctx->sm;
	struct sm *s = bpf_map_lookup_elem(&sms, &k);
	u32 threads = ctx->threads_x * ctx->threads_y * ctx->threads_z;

	if (s) {
		__sync_fetch_and_add(&s->blocks, 1);
		__sync_fetch_and_add(&s->warps, (threads + 31) / 32);
		__sync_fetch_and_add(&s->lanes, threads);
	}
	return 0;
}

GBPF_LICENSE("MIT");
