/* For `gbpf bench pace`: everything that can be stopped between blocks is launched so, large grids in pieces; nothing is
 * held. What it costs is then the mechanism's price alone. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u32 piece_blocks = 16384;

SEC("gbpf/submit")
int GBPF_PROG(pace_submit, submit)
{
	if (!ctx->block_ok) {
		return GBPF_GO;
	}
	ctx->level = GBPF_LEVEL_BLOCK;
	ctx->split_blocks = piece_blocks;
	return ctx->blocks > piece_blocks ? GBPF_SPLIT : GBPF_GO;
}
