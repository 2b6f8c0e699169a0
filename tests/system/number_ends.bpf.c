/* Ends of blocks by the number of the launch. */
#include "by_launch.bpf.h"

BY_LAUNCH(ends);

SEC("gdev/block_exit")
int GBPF_PROG(leave, gdev_block_exit)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&ends, &launch, 1);
	return 0;
}

GBPF_LICENSE("MIT");
