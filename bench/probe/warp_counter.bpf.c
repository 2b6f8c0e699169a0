/* For `gbpf bench probe`: counts the warps that enter, in a shard for each multiprocessor, 128
 * bytes apart. */
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

SEC("gdev/enter")
int GBPF_PROG(count, gdev_enter)
{
	u32 sm = ctx->sm & 255;
	struct shard *s = bpf_map_lookup_elem(&counts, &sm);

	if (s) {
		__sync_fetch_and_add(&s->n, 1);
	}
	return 0;
}
