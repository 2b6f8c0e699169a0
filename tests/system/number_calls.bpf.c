/* Calls of device functions by the number of the launch. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, u64);
} calls SEC(".maps");

SEC("gdev/probe")
int GBPF_PROG(call, gdev_probe)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&calls, &launch, ctx->lanes);
	return 0;
}

GBPF_LICENSE("MIT");
