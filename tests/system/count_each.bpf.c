/* A value for each block and for each thread: warps that entered, and the lane times the runs of the
 * thread. There is room for fewer of both than some launches have. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_BLOCK_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, u64);
} of_block SEC(".maps");

struct {
	__uint(type, GBPF_MAP_GPU_THREAD_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 800);
	__type(key, u32);
	__type(value, u64);
} of_thread SEC(".maps");

SEC("gdev/enter/scale")
int GBPF_PROG(enter, gdev_enter)
{
	u32 own = 0;
	u64 *n = bpf_map_lookup_elem(&of_block, &own);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}

SEC("gdev.lane/exit/scale")
int GBPF_PROG(leave, gdev_exit)
{
	u32 own = 0;
	u64 *n = bpf_map_lookup_elem(&of_thread, &own);

	if (n) {
		*n += ctx->lane;
	}
	return 0;
}

GBPF_LICENSE("MIT");
