/* Counts the submissions of kernels that run the tool, and their blocks, and what retires; and tries to hold every launch,
 * which a tool cannot. */
#include <gbpf/gbpf.bpf.h>

enum { LAUNCHES, BLOCKS, THREADS, STRANGE, FIGURES };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, FIGURES);
	__type(key, u32);
	__type(value, u64);
} submits SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} retires SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} blocks SEC(".maps");

static __always_inline void add(void *map, u32 k, u64 n)
{
	u64 *v = bpf_map_lookup_elem(map, &k);

	if (v) {
		__sync_fetch_and_add(v, n);
	}
}

SEC("gbpf/submit")
int GBPF_PROG(see, submit)
{
	add(&submits, LAUNCHES, 1);
	add(&submits, BLOCKS, ctx->blocks);
	add(&submits, THREADS, ctx->threads);
	/* The clocks of the host and the soft GPU are known, and differ. */
	if (!ctx->tool || ctx->smem_bytes || ctx->kind != GBPF_KIND_KERNEL || !ctx->kernel || !ctx->gpu_ns || ctx->gpu_ns == ctx->now_ns) {
		add(&submits, STRANGE, 1);
	}
	ctx->hold_ns = 60000000000;
	ctx->level = GBPF_LEVEL_BLOCK;
	return GBPF_DEFER;
}

SEC("gbpf/retire")
int GBPF_PROG(see_end, retire)
{
	add(&retires, 0, ctx->count);
	ctx->linger_ns = 60000000000;
	return 0;
}

SEC("gdev/block_enter")
int GBPF_PROG(count, gdev_block_enter)
{
	add(&blocks, 0, 1);
	return 0;
}

GBPF_LICENSE("MIT");
