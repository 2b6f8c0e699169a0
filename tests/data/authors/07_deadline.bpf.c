/* Earliest deadline first among the tenants: the two nearest deadlines may run. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u64 nearest, nearest2;
u32 holder;

SEC("gbpf/tick") int GBPF_PROG(edf_tick, tick)
{
	u64 a = ~0ULL, b = ~0ULL;
	u32 who = GBPF_TENANTS;

	for (int i = 0; i < ctx->tenants; i++) {
		u64 d = gbpf_tenant_stat(i, GBPF_STAT_DEADLINE_NS);

		if (d == 0 || d < ctx->now_ns) {
			continue;
		}
		if (d < a) {
			b = a;
			a = d;
			who = i;
		} else if (d < b) {
			b = d;
		}
	}
	nearest = a;
	nearest2 = b;
	holder = who;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(edf_submit, submit)
{
	u64 d = ctx->deadline_ns;

	if (!d) {
		return nearest != ~0ULL && nearest - ctx->now_ns < 3000000 ? GBPF_DEFER : GBPF_GO;
	}
	return d <= nearest2 || ctx->tenant == holder ? GBPF_GO : GBPF_HOLD;
}
