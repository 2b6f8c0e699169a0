/* accept: functions in sections of their own, initialized data of every kind. */
#include "gbpf/gbpf.bpf.h"

static const u32 table[4] = { 1, 2, 3, 4 };
const volatile u32 limit = 40;
u64 begun = 5;
u64 unset[3];
SEC(".data.mine") u64 mine = 6;
GBPF_TENANT u64 seen;

SEC("more.code") __noinline u32 weigh(u32 i)
{
	return table[i & 3];
}

__attribute__((section(".text.hot"))) __noinline u32 twice(u32 v)
{
	return weigh(v) * 2;
}

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	static u64 calls; /* named rank.calls */

	seen += 1;
	return (int)((twice(ctx->queue) + limit + begun + mine + unset[1] + calls) & 1023);
}

GBPF_LICENSE("Apache-2.0");
