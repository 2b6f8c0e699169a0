/* The number of each launch, and its blocks: as its brackets see both, and as counted by its blocks. */
#include <gbpf/gbpf.bpf.h>

#define COUNTER(name)                            \
	struct {                                 \
		__uint(type, GBPF_MAP_HASH);     \
		__uint(map_flags, GBPF_F_DEVICE); \
		__uint(max_entries, 2048);       \
		__type(key, u64);                \
		__type(value, u64);              \
	} name SEC(".maps")

COUNTER(begun);
COUNTER(counted);
COUNTER(ended);

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
