/* Every tenant runs in the shared lane and is restarted once after a neighbour's crash, except at weight 7. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/admit")
int GBPF_PROG(restart_admit, admit)
{
	ctx->lane = GBPF_LANE_SHARED;
	ctx->restart = ctx->weight == 7 ? 0 : 1;
	return GBPF_ADMIT;
}
