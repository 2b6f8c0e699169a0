/* threadhist: what is launched. Counts, for each size of a block, the launches, blocks, warps and threads, and how many
 * lanes of the warps have no thread because the size is no multiple of 32. */
#include <gbpf/gbpf.bpf.h>

#define THREADS 1024 /* of a block, at most */

struct size {
	u64 launches, blocks;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, THREADS + 1);
	__type(key, u32);
	__type(value, struct size);
} sizes SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(block, gdev_block_enter)
{
	u32 k = ctx->threads_x * ctx->threads_y * ctx->threads_z;
	struct size *s = bpf_map_lookup_elem(&sizes, &k);

	if (!s) {
		return 0;
	}
	__sync_fetch_and_add(&s->blocks, 1);
	if (ctx->block == 0) {
		__sync_fetch_and_add(&s->launches, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
