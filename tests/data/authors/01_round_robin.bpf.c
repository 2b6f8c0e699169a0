/* Round robin: tick gives the turn to the next tenant that has work. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u32 turn;
u64 turn_since;

SEC("gbpf/tick") int GBPF_PROG(rotate, tick)
{
	u32 next = turn;

	if (ctx->now_ns - turn_since < 2000000) {
		return 0;
	}
	for (u32 i = 0; i < 64; i++) {
		next = (next + 1) % 64;
		if (next < ctx->tenants && gbpf_tenant_stat(next, GBPF_STAT_INFLIGHT_NS)) {
			break;
		}
	}
	turn = next;
	turn_since = ctx->now_ns;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(wait_turn, submit)
{
	if (ctx->tenant == turn || ctx->held_ns > 20000000) {
		return GBPF_GO;
	}
	ctx->hold_ns = 500000;
	return GBPF_HOLD;
}
