/* For `gbpf bench pace`: launches everything that can be stopped between blocks at block level,
 * large grids in gBPF's own pieces, and holds nothing. The measured cost is that of the mechanism
 * alone. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(pace_submit, submit)
{
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
	}
	return GBPF_GO;
}
