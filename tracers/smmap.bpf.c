/* smmap: where work runs, and for how long. Counts, for each multiprocessor, the blocks that began on it, their warps
 * and the lanes of these that exist, and adds up the times of those that have ended: so that one sees multiprocessors
 * that get less than others: grids with a rest, few blocks, blocks with more work, streams with a share of the GPU.
 *
 * Code is inserted at the end of a block only in kernels with PTX. Of machine code a later block, or the end of the
 * launch, reports an end: with these bounds each place for a block would be used until the launch ends, and all
 * multiprocessors equally. The program `end` reads the size of the block, which a late report does not know, so entry
 * stubs run `block` alone. */
#include <gbpf/gbpf.bpf.h>

#define SMS 1024 /* more than GPUs have */

struct sm {
	u64 blocks, warps, lanes;
	u64 ended, busy_ns; /* blocks with a time, and its sum */
	u64 lost;	    /* blocks that ended, but whose times are none */
	u64 open;	    /* blocks that began, less those that ended, modulo 2^64 */
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
		__sync_fetch_and_add(&s->open, 1);
	}
	return 0;
}

SEC("gdev/block_exit")
int GBPF_PROG(end, gdev_block_exit)
{
	u32 k = ctx->sm, threads = ctx->threads_x;
	struct sm *s = bpf_map_lookup_elem(&sms, &k);
	u64 begin = ctx->begin_ns, end = ctx->end_ns;

	if (!s || !threads) {
		return 0;
	}
	__sync_fetch_and_add(&s->open, -1ULL);
	if (begin && begin <= end) {
		__sync_fetch_and_add(&s->ended, 1);
		__sync_fetch_and_add(&s->busy_ns, end - begin);
	} else {
		__sync_fetch_and_add(&s->lost, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
