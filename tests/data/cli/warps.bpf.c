/* A tool: counts warps of all kernels. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_DEVICE);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

SEC("gdev/enter")
int GBPF_PROG(count, gdev_enter)
{
	u32 zero = 0;
	u64 *n = bpf_map_lookup_elem(&counts, &zero);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}
