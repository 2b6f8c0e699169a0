/* accept: tail calls into programs that fill no hook themselves. */
#include "gbpf/gbpf.bpf.h"

int low(struct gbpf_dispatch_ctx *ctx);
int high(struct gbpf_dispatch_ctx *ctx);

struct {
	__uint(type, GBPF_MAP_PROG_ARRAY);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__array(values, int(void *));
} ranks SEC(".maps") = {
	.values = {
		[1] = (void *)&low,
		[6] = (void *)&high,
		[7] = (void *)&low,
	},
};

static __noinline int scaled(u64 v)
{
	return (v & 255) * 3;
}

SEC("?gbpf/dispatch") int GBPF_PROG(low, dispatch)
{
	return 5;
}

SEC("?gbpf/dispatch") int GBPF_PROG(high, dispatch)
{
	if (ctx->held_ns > 100) {
		bpf_tail_call(ctx, &ranks, 1);
	}
	return scaled(ctx->held_ns);
}

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	bpf_tail_call(ctx, &ranks, ctx->queue);
	return 9;
}

GBPF_LICENSE("GPL");
