/* Counts where its programs run: before launches, at the beginning of blocks, at barriers. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u64);
} parts SEC(".maps");

static __always_inline int count(u32 k)
{
	u64 *n = bpf_map_lookup_elem(&parts, &k);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}

SEC("gdev/begin")
int GBPF_PROG(at_begin, gdev_begin)
{
	return count(0);
}

SEC("gdev/block_enter")
int GBPF_PROG(at_block, gdev_block_enter)
{
	return count(1);
}

SEC("gdev/barrier/*/before")
int GBPF_PROG(at_barrier, gdev_barrier)
{
	return count(2);
}

GBPF_LICENSE("MIT");
