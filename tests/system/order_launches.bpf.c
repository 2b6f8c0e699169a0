/* On one stream: when a launch begins, all blocks of those before it have begun and none of its
 * own; when it ends, all of its own have. */
#include <gbpf/gbpf.bpf.h>

enum { BLOCKS, EXPECTED, WRONG, ENDS };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} order SEC(".maps");

static u64 read(u32 index)
{
	u64 *n = bpf_map_lookup_elem(&order, &index);

	return n ? *n : 0;
}

static void check(void)
{
	if (read(BLOCKS) != read(EXPECTED)) {
		gbpf_atomic_add(&order, WRONG, 1);
	}
}

SEC("gdev/begin")
int GBPF_PROG(begin, gdev_begin)
{
	check();
	gbpf_atomic_add(&order, EXPECTED, ctx->grid_x);
	return 0;
}

SEC("gdev/block_enter")
int GBPF_PROG(enter, gdev_block_enter)
{
	gbpf_atomic_add(&order, BLOCKS, 1);
	return 0;
}

SEC("gdev/end")
int GBPF_PROG(end, gdev_end)
{
	check();
	gbpf_atomic_add(&order, ENDS, 1);
	return 0;
}

GBPF_LICENSE("MIT");
