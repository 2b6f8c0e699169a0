/* For `gbpf bench probe`: stores the time at which each warp of a grid leaves; blocks have 8 warps.
 */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

struct block {
	u64 warp[8];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 262144); /* of 64 Mi threads */
	__type(key, u32);
	__type(value, struct block);
} times SEC(".maps");

SEC("gdev/exit")
int GBPF_PROG(stamp, gdev_exit)
{
	u32 i = ctx->block_x;
	struct block *b = bpf_map_lookup_elem(&times, &i);

	if (b) {
		b->warp[ctx->warp & 7] = ctx->time_ns;
	}
	return 0;
}
