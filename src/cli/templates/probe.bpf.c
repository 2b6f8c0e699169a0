/* mypolicy: looks inside kernels. It counts the blocks that begin on each multiprocessor, and draws how many
 * sectors of global memory an access of a warp touches.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf probe attach mypolicy.bpf.o --to train    # to the programs called train, while they run
 *	gbpf map dump --nonzero blocks    # blocks by multiprocessor
 *	gbpf map dump sectors    # draws the histogram
 *	gbpf probe ls    # kernels, cost and tools
 *	gbpf probe swap mypolicy mypolicy.bpf.o    # a changed object takes its place
 *	gbpf probe detach mypolicy    # kernels run their own code again
 *
 * A program runs once per warp, on one of its lanes; that of gdev/block_enter once per block. It
 * observes; it cannot change what a kernel computes. gbpf-policy(7) lists hooks, fields and helpers. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

#define SMS 256

/* In the GPU's memory. Counters that different multiprocessors add to lie 128 bytes apart: they do
 * not share a line of its cache. */
struct sm {
	u64 blocks;
} __attribute__((aligned(128)));

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, SMS);
	__type(key, u32);
	__type(value, struct sm);
} blocks SEC(".maps");

struct {
	__uint(type, GBPF_MAP_HISTOGRAM);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gbpf_hist);
} sectors SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(mypolicy_block, gdev_block_enter)
{
	u32 sm = ctx->sm;
	struct sm *s = bpf_map_lookup_elem(&blocks, &sm);

	if (s) {
		__sync_fetch_and_add(&s->blocks, 1);
	}
	return 0;
}

/* Loads, stores and atomics of global memory, in all kernels. The section is gdev/HOOK/KERNEL/SITE: a
 * pattern of kernels' names, and words with dots between them, such as load.global. */
SEC("gdev/access/*/global")
int GBPF_PROG(mypolicy_access, gdev_access)
{
	gbpf_hist_add(&sectors, 0, ctx->sectors); /* of 32 bytes */
	return 0;
}
