/* Lottery: each tick draws a winner among the weights of the tenants that are there. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u32 winner;

SEC("gbpf/tick") int GBPF_PROG(draw, tick)
{
	u64 total = 0, ticket;
	u32 n = ctx->tenants < 256 ? ctx->tenants : 256;

	for (u32 i = 0; i < n; i++) {
		long w = gbpf_tenant_weight(i);

		if (w > 0) {
			total += w;
		}
	}
	if (!total) {
		return 0;
	}
	ticket = bpf_get_prandom_u32() % total;
	for (u32 i = 0; i < n; i++) {
		long w = gbpf_tenant_weight(i);

		if (w <= 0) {
			continue;
		}
		if (ticket < w) {
			winner = i;
			break;
		}
		ticket -= w;
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(play, submit)
{
	if (ctx->tenant == winner || ctx->asked > 10) {
		return GBPF_GO;
	}
	return GBPF_HOLD;
}
