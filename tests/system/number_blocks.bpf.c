/* Blocks, threads and stores of each launch, by its number, which all lanes of a warp know. */
#include "by_launch.bpf.h"

BY_LAUNCH(counted);
BY_LAUNCH(threads);
BY_LAUNCH(stores);

SEC("gdev/block_enter")
int GBPF_PROG(enter, gdev_block_enter)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&counted, &launch, 1);
	return 0;
}

SEC("gdev.lane/exit")
int GBPF_PROG(leave, gdev_exit)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&threads, &launch, 1);
	return 0;
}

SEC("gdev/access/*/store.global")
int GBPF_PROG(store, gdev_access)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&stores, &launch, ctx->lanes);
	return 0;
}

GBPF_LICENSE("MIT");
