/* One of two fields by a condition, inside kernels. Twins: of two neighbours at once, an array of fields, the address of the
 * field in a map. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_DEVICE u64 seen[4];

SEC("gdev/enter") int GBPF_PROG(check, gdev_enter)
{
#if TWIN == 0
	seen[0] = ctx->sm & 1 ? ctx->time_ns : ctx->block;
	seen[1] = ctx->sm & 2 ? ctx->warp : ctx->lane;
	seen[2] = (ctx->sm & 4 ? &ctx->block_x : &ctx->block_y)[0];
#elif TWIN == 1
	seen[0] = *(volatile u64 *)(ctx->sm & 1 ? &ctx->block_x : &ctx->block_z);
#elif TWIN == 2
	seen[0] = (&ctx->block_x)[ctx->sm & 7];
#elif TWIN == 3
	seen[0] = (u64)(ctx->sm & 1 ? &ctx->time_ns : &ctx->block);
#endif
	return 0;
}

GBPF_LICENSE("GPL");
