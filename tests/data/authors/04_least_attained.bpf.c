/* Least attained service: the tenant with the least device time goes first (argmin by a plain loop). */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u64 served[GBPF_TENANTS];
u32 first, second;

SEC("gbpf/tick") int GBPF_PROG(las_tick, tick)
{
	u64 best = ~0ULL, next = ~0ULL;
	u32 arg = 0, arg2 = 0;

	for (u32 i = 0; i < ctx->tenants; i++) {
		u64 busy = gbpf_tenant_stat(i, GBPF_STAT_BUSY_NS);

		if (i < GBPF_TENANTS) {
			served[i] = busy;
		}
		if (!gbpf_tenant_stat(i, GBPF_STAT_INFLIGHT_NS)) {
			continue;
		}
		if (busy < best) {
			next = best;
			arg2 = arg;
			best = busy;
			arg = i;
		} else if (busy < next) {
			next = busy;
			arg2 = i;
		}
	}
	first = arg;
	second = arg2;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(las_submit, submit)
{
	if (ctx->tenant == first || ctx->tenant == second) {
		return GBPF_GO;
	}
	ctx->hold_ns = served[ctx->tenant] > served[first & (GBPF_TENANTS - 1)] ? 2000000 : 500000;
	return ctx->held_ns > 10000000 ? GBPF_GO : GBPF_HOLD;
}
