/* For `gbpf bench probe`: counts blocks, as block_counter does. The bench writes another number
 * into each copy that the cache of compiled code is not to know. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

struct shard {
	u64 n;
} __attribute__((aligned(128)));

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct shard);
} counts SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(count, gdev_block_enter)
{
	u32 sm = ctx->sm & 255;
	struct shard *s = bpf_map_lookup_elem(&counts, &sm);
	u64 stamp;

	asm volatile("%0 = 0x5eed0004a5a5a5a5 ll" : "=r"(stamp));
	if (s) {
		__sync_fetch_and_add(&s->n, 1);
	}
	return 0;
}
