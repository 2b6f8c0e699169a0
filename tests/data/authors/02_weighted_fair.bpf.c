/* Weighted fair sharing: the virtual time of the tenant that is furthest behind is the floor. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct account {
	u64 vtime;
	u64 seen;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

u64 floor_vtime;

SEC("gbpf/submit") int GBPF_PROG(wfq_submit, submit)
{
	u32 zero = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &zero);

	if (!a) {
		return GBPF_GO;
	}
	a->seen = ctx->now_ns;
	if (a->vtime < floor_vtime) {
		a->vtime = floor_vtime;
	}
	return a->vtime > floor_vtime + 4000000 ? GBPF_HOLD : GBPF_GO;
}

SEC("gbpf/retire") int GBPF_PROG(wfq_retire, retire)
{
	u32 zero = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &zero);

	if (a) {
		a->vtime += ctx->duration_ns * 100 / (ctx->weight ? ctx->weight : 1);
	}
	return 0;
}

SEC("gbpf/tick") int GBPF_PROG(wfq_tick, tick)
{
	u64 min = ~0ULL;
	u32 zero = 0;

	for (u32 i = 0; i < ctx->tenants; i++) {
		struct account *a = gbpf_tenant_lookup(&accounts, i, &zero);

		if (!a || ctx->now_ns - a->seen > 50000000) {
			continue;
		}
		if (a->vtime < min) {
			min = a->vtime;
		}
	}
	if (min != ~0ULL) {
		floor_vtime = min;
	}
	return 0;
}
