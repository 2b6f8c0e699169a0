/* The number of each launch, and its blocks: as its brackets see both, and as counted by its blocks. */
#include "by_launch.bpf.h"

BY_LAUNCH(begun);
BY_LAUNCH(counted);
BY_LAUNCH(ended);

SEC("gdev/begin")
int GBPF_PROG(begin, gdev_begin)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&begun, &launch, ctx->grid_x);
	return 0;
}

SEC("gdev/block_enter")
int GBPF_PROG(enter, gdev_block_enter)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&counted, &launch, 1);
	return 0;
}

SEC("gdev/end")
int GBPF_PROG(end, gdev_end)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&ended, &launch, ctx->grid_x);
	return 0;
}

GBPF_LICENSE("MIT");
