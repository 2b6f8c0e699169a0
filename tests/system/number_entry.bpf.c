/* Blocks of each launch by its number, with nothing that an entry stub or a stopped launch lacks. */
#include "by_launch.bpf.h"

BY_LAUNCH(counted);

SEC("gdev/block_enter")
int GBPF_PROG(enter, gdev_block_enter)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&counted, &launch, 1);
	return 0;
}

GBPF_LICENSE("MIT");
