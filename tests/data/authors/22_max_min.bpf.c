/* Max-min fairness: water filling over the demands of the tenants in a few passes. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u64 demand[128], grant[128];
const volatile u64 capacity = 1000000;

SEC("gbpf/tick") int GBPF_PROG(fill, tick)
{
	u64 left = capacity;
	u32 n = ctx->tenants, open = 0;

	if (n > 128) {
		n = 128;
	}
	for (u32 i = 0; i < n; i++) {
		demand[i] = gbpf_tenant_stat(i, GBPF_STAT_INFLIGHT_NS) / 1000;
		grant[i] = 0;
		if (demand[i]) {
			open++;
		}
	}
	for (int pass = 0; pass < 4 && open && left; pass++) {
		u64 share = left / open;

		for (u32 i = 0; i < n; i++) {
			u64 want = demand[i] - grant[i], give;

			if (demand[i] <= grant[i]) {
				continue;
			}
			give = want < share ? want : share;
			grant[i] += give;
			left -= give < left ? give : left;
			if (grant[i] == demand[i] && open) {
				open--;
			}
		}
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(spend, submit)
{
	if (ctx->tenant >= 128 || !grant[ctx->tenant]) {
		return GBPF_GO;
	}
	return ctx->inflight_ns / 1000 > grant[ctx->tenant] ? GBPF_HOLD : GBPF_GO;
}
