/* For tools/point-test: uses every kind of map in every hook that may, so that each POINT() of the maps is passed all
 * the time. Compiled with two values of VERSION. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 version = VERSION;

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
	__uint(map_flags, GBPF_F_TENANT);
} counters SEC(".maps");

static __always_inline void count(u32 i)
{
	u64 *n = bpf_map_lookup_elem(&counters, &i);

	if (n) {
		__sync_fetch_and_add(n, version);
	}
}

SEC("gbpf/submit")
int GBPF_PROG(points_submit, submit)
{
	count(0);
	if (ctx->class_id == GBPF_CLASS_BATCH && ctx->lc_open) {
		ctx->hold_ns = 2000000;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(points_retire, retire)
{
	count(1);
	return 0;
}

SEC("gbpf/tick")
int GBPF_PROG(points_tick, tick)
{
	return 0;
}
