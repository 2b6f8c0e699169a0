/* Half of a policy: the other defines what is extern here. */
#include "gbpf/gbpf.bpf.h"

extern u64 limit_of(u32 class_id);

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");

u64 shared_total = 5;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	u32 key = 0;
	u64 *v = bpf_map_lookup_elem(&counts, &key);

	if (v) {
		*v += 1;
	}
	return ctx->est_ns > limit_of(ctx->class_id) ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
