/* Gangs: tenants of one gang (an operator's map) have their turn together. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, u32);
} gang_of SEC(".maps");

u32 members[16], running[16];
u32 current;
u64 since;

SEC("gbpf/tick") int GBPF_PROG(gang_tick, tick)
{
	u32 busy[16] = {};
	u32 best = 0, most = 0;

	for (u32 i = 0; i < 256 && i < ctx->tenants; i++) {
		u32 *g = bpf_map_lookup_elem(&gang_of, &i);

		if (!g || *g >= 16) {
			continue;
		}
		if (gbpf_tenant_stat(i, GBPF_STAT_INFLIGHT_NS)) {
			busy[*g]++;
		}
	}
	for (u32 g = 0; g < 16; g++) {
		running[g] = busy[g];
		if (g != current && busy[g] > most) {
			most = busy[g];
			best = g;
		}
	}
	if (ctx->now_ns - since > 10000000 && most) {
		current = best;
		since = ctx->now_ns;
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(gang_submit, submit)
{
	u32 t = ctx->tenant;
	u32 *g = bpf_map_lookup_elem(&gang_of, &t);

	if (!g || *g == 0 || *g == current) {
		return GBPF_GO;
	}
	return ctx->held_ns > 50000000 ? GBPF_GO : GBPF_HOLD;
}
