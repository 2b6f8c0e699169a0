/* Ends of blocks by the number of the launch. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, u64);
} ends SEC(".maps");

SEC("gdev/block_exit")
int GBPF_PROG(leave, gdev_block_exit)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&ends, &launch, 1);
	return 0;
}

GBPF_LICENSE("MIT");
