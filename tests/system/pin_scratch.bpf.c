/* Counts the blocks of each kernel in host memory, by what each first warp keeps in shared memory. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE | GBPF_F_HOST);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} blocks SEC(".maps");

struct {
	__uint(type, GBPF_MAP_WARP_SCRATCH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} own SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(count, gdev_block_enter)
{
	u32 k = 0;
	u64 *n = bpf_map_lookup_elem(&own, &k);

	if (n) {
		*n += 1;
		gbpf_atomic_add(&blocks, 0, *n);
	}
	return 0;
}

GBPF_LICENSE("MIT");
