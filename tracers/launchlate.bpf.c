/* launchlate: how long launches wait until they begin on the GPU. A program of submit stores the time at which each
 * launch was handed to the driver, on the GPU's clock, and one of block_enter the begin of the launch's block 0. Both
 * number the launches of a kernel. `gbpf trace` reads the times of the same number: launches of one kernel begin in the
 * order of their submission, unless they are in several streams. Of each kernel the last launches are kept. */
#include <gbpf/gbpf.bpf.h>

#define KERNELS 32 /* kernels whose hashes agree share a place, and its numbers */
#define LAUNCHES 128

struct stamp {
	u64 number, time_ns;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, KERNELS);
	__type(key, u32);
	__type(value, u64);
} submitted SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, KERNELS * LAUNCHES);
	__type(key, u32);
	__type(value, struct stamp);
} submits SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, KERNELS);
	__type(key, u32);
	__type(value, u64);
} begun SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, KERNELS * LAUNCHES);
	__type(key, u32);
	__type(value, struct stamp);
} begins SEC(".maps");

SEC("gbpf/submit")
int GBPF_PROG(submit_one, submit)
{
	u32 k = ctx->kernel % KERNELS;
	u64 *count = bpf_map_lookup_elem(&submitted, &k), number;
	struct stamp *s;

	if (!count) {
		return 0;
	}
	number = __sync_fetch_and_add(count, 1) + 1;
	k = k * LAUNCHES + number % LAUNCHES;
	s = bpf_map_lookup_elem(&submits, &k);
	if (s) {
		s->time_ns = ctx->gpu_ns;
		s->number = number;
	}
	return 0;
}

SEC("gdev/block_enter")
int GBPF_PROG(begin_one, gdev_block_enter)
{
	u32 k = ctx->kernel % KERNELS;
	u64 *count, number;
	struct stamp *s;

	if (ctx->block) {
		return 0;
	}
	count = bpf_map_lookup_elem(&begun, &k);
	if (!count) {
		return 0;
	}
	number = __sync_fetch_and_add(count, 1) + 1;
	k = k * LAUNCHES + number % LAUNCHES;
	s = bpf_map_lookup_elem(&begins, &k);
	if (s) {
		s->time_ns = bpf_ktime_get_ns();
		s->number = number;
	}
	return 0;
}

GBPF_LICENSE("MIT");
