/* Counts warps and their threads by the number of the warp, in a hash table of the GPU. The program of
 * each lane adds what its lanes have in one call, that of a warp one by one. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 64);
	__type(key, u64);
	__type(value, u64);
} keys SEC(".maps");

SEC("gdev/enter/scale")
int GBPF_PROG(enter, gdev_enter)
{
	u64 key = ctx->warp, one = 1;

	if (!bpf_map_update_elem(&keys, &key, &one, BPF_NOEXIST)) {
		return 0;
	}
	u64 *n = bpf_map_lookup_elem(&keys, &key);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}

SEC("gdev.lane/exit/scale")
int GBPF_PROG(leave, gdev_exit)
{
	u64 key = 100 + ctx->warp;

	gbpf_key_add(&keys, &key, ctx->lane);
	return 0;
}

GBPF_LICENSE("MIT");
