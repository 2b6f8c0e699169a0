/* Blocks of each launch by its number, with nothing that an entry stub or a stopped launch lacks. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 2048);
	__type(key, u64);
	__type(value, u64);
} counted SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(enter, gdev_block_enter)
{
	u64 launch = ctx->launch;

	gbpf_key_add(&counted, &launch, 1);
	return 0;
}

GBPF_LICENSE("MIT");
