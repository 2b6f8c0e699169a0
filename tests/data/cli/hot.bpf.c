/* A tool with words to which every warp adds (hot_*), and with others (cold_*). */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

#define COUNTERS(kind, name)                                                                       \
	struct {                                                                                   \
		__uint(type, kind);                                                                \
		__uint(map_flags, GBPF_F_DEVICE);                                                  \
		__uint(max_entries, 64);                                                           \
		__type(key, u32);                                                                  \
		__type(value, u64);                                                                \
	} name SEC(".maps")

COUNTERS(GBPF_MAP_ARRAY, hot_looked_up);
COUNTERS(GBPF_MAP_ARRAY, hot_helper);
COUNTERS(GBPF_MAP_HASH, hot_key);
COUNTERS(GBPF_MAP_ARRAY, cold_sm);
COUNTERS(GBPF_MAP_ARRAY, cold_sm_helper);
COUNTERS(GBPF_MAP_ARRAY, cold_guarded);
COUNTERS(GBPF_MAP_ARRAY, cold_block);
COUNTERS(GBPF_MAP_SM_ARRAY, cold_array);

static __always_inline void add(void *map, u32 k)
{
	u64 *v = bpf_map_lookup_elem(map, &k);

	if (v) {
		__sync_fetch_and_add(v, 1);
	}
}

SEC("gdev/enter")
int GBPF_PROG(hot_enter, gdev_enter)
{
	add(&hot_looked_up, 3);
	gbpf_atomic_add(&hot_helper, 1, 1);
	add(&hot_key, 7);
	return 0;
}

SEC("gdev/access")
int GBPF_PROG(hot_access, gdev_access)
{
	gbpf_atomic_add(&hot_helper, 2, 1);
	return 0;
}

SEC("gdev/exit")
int GBPF_PROG(cold_exit, gdev_exit)
{
	add(&cold_sm, ctx->sm % 64);
	gbpf_atomic_add(&cold_sm_helper, ctx->sm % 64, 1);
	add(&cold_array, 0);
	if (ctx->block == 0) {
		add(&cold_guarded, 0);
	}
	return 0;
}

SEC("gdev/block_enter")
int GBPF_PROG(cold_block_enter, gdev_block_enter)
{
	add(&cold_block, 0);
	return 0;
}

COUNTERS(GBPF_MAP_ARRAY, cold_either);
COUNTERS(GBPF_MAP_ARRAY, cold_loop);
COUNTERS(GBPF_MAP_HASH, cold_known);
COUNTERS(GBPF_MAP_ARRAY, cold_if_known);

SEC("gdev/exit")
int GBPF_PROG(cold_paths, gdev_exit)
{
	u32 block = ctx->block;

	gbpf_atomic_add(&cold_either, block & 1 ? 3 : 5, 1);
	if (bpf_map_lookup_elem(&cold_known, &block)) {
		gbpf_atomic_add(&cold_if_known, 0, 1);
	}
	return 0;
}

SEC("gdev/exit")
int GBPF_PROG(cold_in_loop, gdev_exit)
{
	u32 sm = ctx->sm;

#pragma clang loop unroll(disable)
	for (u32 i = 0; i < 4; i++) {
		if (sm >> i & 1) {
			gbpf_atomic_add(&cold_loop, 0, 1);
		}
	}
	return 0;
}
