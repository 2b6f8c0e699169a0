/* admit decides by the requested weight: 11 the shared lane, 12 a slice that reports the nice
 * value, 13 to 16 invalid values, 17 a share of the multiprocessors in the process lane. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/admit")
int GBPF_PROG(lanes_admit, admit)
{
	switch (ctx->weight) {
	case 11:
		ctx->lane = GBPF_LANE_SHARED;
		ctx->sm_percent = 50;
		ctx->priority = 1;
		ctx->slice_us = 777;
		return GBPF_ADMIT;
	case 12:
		ctx->slice_us = (u32)(1000 + ctx->nice + (ctx->command != 0) * 100);
		return GBPF_ADMIT;
	case 17:
		ctx->sm_percent = 40;
		return GBPF_ADMIT;
	case 13:
		ctx->lane = 2;
		return GBPF_ADMIT;
	case 14:
		ctx->sm_percent = 101;
		return GBPF_ADMIT;
	case 15:
		ctx->slice_us = 1000001;
		return GBPF_ADMIT;
	case 16:
		ctx->priority = -1;
		return GBPF_ADMIT;
	}
	return GBPF_ADMIT;
}
