/* Calls of device functions by the number of the launch. */
#include "by_launch.bpf.h"

BY_LAUNCH(calls);

SEC("gdev/probe")
int GBPF_PROG(call, gdev_probe)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&calls, &launch, ctx->lanes);
	return 0;
}

GBPF_LICENSE("MIT");
