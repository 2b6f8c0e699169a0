/* One of two fields by a condition, which clang loads through one pointer into the context. Twins: the index of the other
 * field, an array of fields, a store to a field that may only be read. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[1024];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u64 x = ctx->kind ? ctx->est_ns : ctx->bytes;

#if TWIN == 0
	u32 i = ctx->queue & 1 ? ctx->tenant : ctx->class_id;
	*(ctx->queue & 2 ? &ctx->level : &ctx->split_blocks) = 1;
#elif TWIN == 1
	u32 i = ctx->queue & 1 ? ctx->tenant : ctx->weight;
#elif TWIN == 2
	u32 i = (&ctx->tenant)[ctx->queue & 7] & 1;
#elif TWIN == 3
	u32 i = 0;
	*(ctx->queue & 2 ? &ctx->level : &ctx->inflight) = 1;
#endif
	tab[i]++;
	return x > 5 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
