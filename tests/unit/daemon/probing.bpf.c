/* A tool: counts blocks in memory of the GPU, by index. CHANGED: another one with the same map. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_DEVICE);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} notes SEC(".maps");

SEC("gdev/block_enter/gemm*")
int GBPF_PROG(count, gdev_block_enter)
{
#ifdef CHANGED
	u32 i = 1;
#else
	u32 i = 0;
#endif
	u64 *n = bpf_map_lookup_elem(&counts, &i);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}
