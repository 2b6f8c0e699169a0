/* A warp's values in shared memory, of the kernel scale: what each warp found there when it began,
 * how many lanes found what the warp had stored, and the sum of what lanes added at accesses. */
#include <gbpf/gbpf.bpf.h>

struct own {
	u64 adds, began; /* gbpf_atomic_add() adds to the first */
};

struct {
	__uint(type, GBPF_MAP_WARP_SCRATCH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, struct own);
} own SEC(".maps");

enum { DIRTY, RIGHT, WRONG, ADDS, VALUES };

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, VALUES);
	__type(key, u32);
	__type(value, u64);
} found SEC(".maps");

static __always_inline u64 mark(u64 block, u32 warp)
{
	return (block << 8 | warp) + 1;
}

SEC("gdev/enter/scale")
int GBPF_PROG(enter, gdev_enter)
{
	for (u32 k = 0; k < 3; k++) {
		struct own *o = bpf_map_lookup_elem(&own, &k);

		if (o) {
			gbpf_atomic_add(&found, DIRTY, o->began | o->adds);
			o->began = mark(ctx->block, ctx->warp) + k;
		}
	}
	return 0;
}

SEC("gdev.lane/access/scale")
int GBPF_PROG(access, gdev_access)
{
	gbpf_atomic_add(&own, 1, 1);
	return 0;
}

SEC("gdev/exit/scale")
int GBPF_PROG(leave, gdev_exit)
{
	for (u32 k = 0; k < 3; k++) {
		struct own *o = bpf_map_lookup_elem(&own, &k);

		if (o) {
			u64 same = o->began == mark(ctx->block, ctx->warp) + k;

			gbpf_atomic_add(&found, same ? RIGHT : WRONG, ctx->lanes);
			gbpf_atomic_add(&found, ADDS, __sync_lock_test_and_set(&o->adds, 0));
		}
	}
	return 0;
}

GBPF_LICENSE("MIT");
