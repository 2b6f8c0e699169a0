/* Counts the warps that enter and leave the kernel scale. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} warps SEC(".maps");

static __always_inline void add(u32 k, u64 n)
{
	u64 *v = bpf_map_lookup_elem(&warps, &k);

	if (v) {
		__sync_fetch_and_add(v, n);
	}
}

SEC("gdev/enter/scale")
int GBPF_PROG(enter, gdev_enter)
{
	add(0, 1);
	return 0;
}

SEC("gdev/exit/scale")
int GBPF_PROG(leave, gdev_exit)
{
	add(1, ctx->lanes);
	return 0;
}

GBPF_LICENSE("MIT");
