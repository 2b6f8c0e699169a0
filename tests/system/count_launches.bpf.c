/* Counts the launches of each kernel before and behind them, and checks what both see. */
#include <gbpf/gbpf.bpf.h>

enum { BEGINS, ENDS, BLOCKS, THREADS, BEGUN, ENDED, UNTIMED, DISORDER, KERNELS };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 9);
	__type(key, u32);
	__type(value, u64);
} launches SEC(".maps");

SEC("gdev/begin")
int GBPF_PROG(begin, gdev_begin)
{
	gbpf_atomic_add(&launches, BEGINS, 1);
	gbpf_atomic_add(&launches, BEGUN, ctx->launch);
	gbpf_atomic_add(&launches, KERNELS, ctx->kernel);
	if (ctx->block_x || ctx->thread_x || ctx->lane || ctx->lanes != 1 ||
	    ctx->time_ns < ctx->begin_ns) {
		gbpf_atomic_add(&launches, DISORDER, 1);
	}
	return 0;
}

SEC("gdev/end")
int GBPF_PROG(end, gdev_end)
{
	gbpf_atomic_add(&launches, ENDS, 1);
	gbpf_atomic_add(&launches, ENDED, ctx->launch);
	gbpf_atomic_add(&launches, KERNELS, -ctx->kernel);
	gbpf_atomic_add(&launches, BLOCKS, (u64)ctx->grid_x * ctx->grid_y * ctx->grid_z);
	gbpf_atomic_add(&launches, THREADS,
			(u64)ctx->threads_x * ctx->threads_y * ctx->threads_z + ctx->shared_bytes);
	if (!ctx->begin_ns) {
		gbpf_atomic_add(&launches, UNTIMED, 1);
	} else if (ctx->end_ns < ctx->begin_ns) {
		gbpf_atomic_add(&launches, DISORDER, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
