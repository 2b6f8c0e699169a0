/* For `gbpf bench pace`: everything that can be stopped between blocks is launched so, large grids in gBPF's own
 * pieces; nothing is held. What it costs is then the mechanism's price alone. */
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
