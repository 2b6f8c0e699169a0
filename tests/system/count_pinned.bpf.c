/* Counts the blocks of each kernel in host memory: all of them and the sum of their indices, by the
 * kernel's name, and by multiprocessor; and once more on the GPU. */
#include <gbpf/gbpf.bpf.h>

#define PINNED (GBPF_F_DEVICE | GBPF_F_HOST)

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, PINNED);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} blocks SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} on_gpu SEC(".maps");

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, PINNED);
	__uint(max_entries, 16);
	__type(key, u64);
	__type(value, u64);
} by_kernel SEC(".maps");

struct {
	__uint(type, GBPF_MAP_SM_ARRAY);
	__uint(map_flags, PINNED);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} by_sm SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(count, gdev_block_enter)
{
	u32 k = 0;
	u64 kernel = ctx->kernel;
	u64 *n = bpf_map_lookup_elem(&blocks, &k);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	gbpf_atomic_add(&blocks, 1, ctx->block);
	gbpf_atomic_add(&by_sm, 0, 1);
	gbpf_key_add(&by_kernel, &kernel, 1);
	gbpf_atomic_add(&on_gpu, 0, 1);
	return 0;
}

GBPF_LICENSE("MIT");
