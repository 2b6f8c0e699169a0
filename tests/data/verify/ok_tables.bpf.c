/* accept: constant tables, masks, minima, loops over arrays, functions that are not inlined. */
#include "gbpf/gbpf.bpf.h"

#define N 16

static const u32 weights[8] = { 1, 2, 4, 8, 16, 32, 64, 128 };

struct history {
	u64 last[N];
	u32 at;
	u32 n;
};

GBPF_TENANT struct history history;
u64 totals[4];

static __attribute__((noinline)) u64 mean(const struct history *h)
{
	u64 sum = 0;

	for (int i = 0; i < N; i++) {
		sum += h->last[i];
	}
	return sum / N;
}

static __attribute__((noinline)) u64 smallest(u64 a, u64 b, u64 c)
{
	u64 m = a < b ? a : b;

	return m < c ? m : c;
}

SEC("gbpf/submit") int GBPF_PROG(tables, submit)
{
	u32 at = history.at, w = weights[ctx->class_id & 7];
	u64 limit = smallest(ctx->est_ns * w, mean(&history), totals[ctx->kind & 3]);

	if (at >= N) {
		at = 0;
	}
	history.last[at] = ctx->est_ns;
	history.at = at + 1;
	if (ctx->inflight_ns > limit && ctx->priority >= 0) {
		ctx->hold_ns = limit % 1000000;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
