/* Batch work goes at block level, is held while a request is open or about to come, and what a lease
 * has stopped is counted. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int submit(struct gbpf_submit_ctx *ctx)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY)
		return GBPF_GO;
	ctx->hold_ns = 2000000;
	if (ctx->lc_open)
		return GBPF_HOLD;
	if (ctx->lc_next_ns < 15000000) { /* long, so that a slow machine meets it too */
		gbpf_note(2, 1);
		return GBPF_HOLD;
	}
	if (ctx->block_ok)
		ctx->level = GBPF_LEVEL_BLOCK;
	else if (ctx->inflight >= 2)
		return GBPF_HOLD;
	return GBPF_GO;
}

SEC("gbpf/retire")
int retire(struct gbpf_retire_ctx *ctx)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY)
		ctx->linger_ns = 0;
	else
		gbpf_note(0, ctx->interrupted);
	return 0;
}
