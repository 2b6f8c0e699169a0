/* Token buckets by class, with bursts; tokens are microseconds of device time. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct bucket {
	u64 tokens;
	u64 last;
};

GBPF_TENANT struct bucket buckets[3];
const volatile u64 rate[3] = { 0, 400, 150 };
const volatile u64 burst[3] = { 0, 20000, 5000 };

SEC("gbpf/submit") int GBPF_PROG(take, submit)
{
	u32 c = ctx->class_id;
	struct bucket *b;
	u64 add;

	if (c == GBPF_CLASS_LATENCY || c >= 3) {
		return GBPF_GO;
	}
	b = &buckets[c];
	if (b->last) {
		add = (ctx->now_ns - b->last) / 1000 * rate[c] / 1000;
		b->tokens += add;
		if (b->tokens > burst[c]) {
			b->tokens = burst[c];
		}
	} else {
		b->tokens = burst[c];
	}
	b->last = ctx->now_ns;
	add = ctx->est_ns ? ctx->est_ns / 1000 : 50;
	if (b->tokens >= add || ctx->held_ns > 100000000) {
		b->tokens -= b->tokens < add ? b->tokens : add;
		return GBPF_GO;
	}
	ctx->hold_ns = (add - b->tokens) * 1000;
	return GBPF_HOLD;
}
