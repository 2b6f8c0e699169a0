/* Accepted: a map, a global, two hooks. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
	__uint(map_flags, GBPF_F_TENANT);
} seen SEC(".maps");

const volatile u64 limit_ns = 500000;

SEC("gbpf/submit") int GBPF_PROG(hold_long_batch, submit)
{
	u32 key = ctx->kind & 3;
	u64 *n = bpf_map_lookup_elem(&seen, &key);

	if (n) {
		*n += 1;
	}
	if (ctx->class_id == GBPF_CLASS_BATCH && ctx->lc_open && ctx->inflight_ns > limit_ns) {
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/retire") int GBPF_PROG(short_linger, retire)
{
	ctx->linger_ns = 100000;
	return 0;
}

GBPF_LICENSE("Apache-2.0");
