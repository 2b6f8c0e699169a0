/* accept: clang makes one store of two neighbouring fields, and one load */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/admit")
int admit(struct gbpf_admit_ctx *ctx)
{
	ctx->class_id = GBPF_CLASS_NORMAL;
	ctx->weight = 5;
	return GBPF_ADMIT;
}

SEC("gbpf/submit")
int submit(struct gbpf_submit_ctx *ctx)
{
	ctx->level = GBPF_LEVEL_DRAIN;
	ctx->split_blocks = 64;
	return ctx->lc_open | ctx->inflight ? GBPF_HOLD : GBPF_GO;
}
