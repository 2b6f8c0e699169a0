/* accept: a lock in a value of a map that gbpfd alone uses. */
#include "gbpf/gbpf.bpf.h"

struct guarded {
	u64 sum;
	struct bpf_spin_lock lock;
	u32 n;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, struct guarded);
} shared SEC(".maps");

SEC("gbpf/tick") int GBPF_PROG(add, tick)
{
	u32 zero = 0;
	struct guarded *g = bpf_map_lookup_elem(&shared, &zero);

	if (g) {
		bpf_spin_lock(&g->lock);
		g->sum += ctx->tenants;
		g->n++;
		bpf_spin_unlock(&g->lock);
	}
	return 0;
}

GBPF_LICENSE("GPL");
