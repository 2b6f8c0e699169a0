/* Tail calls are for the main function: a caller would wait for ever. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u32);
} stages SEC(".maps");

static __attribute__((noinline)) int next(struct gbpf_submit_ctx *ctx)
{
	bpf_tail_call(ctx, &stages, 1);
	return GBPF_GO;
}

SEC("gbpf/submit") int GBPF_PROG(first, submit)
{
	return next(ctx);
}

GBPF_LICENSE("GPL");
