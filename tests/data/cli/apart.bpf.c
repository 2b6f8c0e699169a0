/* A program of lanes that updates a map for one of them. */
#include "gbpf/gbpf.bpf.h"

GBPF_DEVICE u64 total;

SEC("gdev.lane/enter") int GBPF_PROG(lanes, gdev_enter)
{
	u32 lane = ctx->lane;

	if (lane == 0)
		__sync_fetch_and_add(&total, 1);
	return 0;
}

GBPF_LICENSE("GPL");
