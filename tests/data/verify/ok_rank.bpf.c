/* accept: a switch, a ranking with an upper bound, several hooks in one object. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	u64 score = ctx->held_ns / 1000;

	switch (ctx->class_id) {
	case GBPF_CLASS_LATENCY:
		score += 500000;
		break;
	case GBPF_CLASS_NORMAL:
		score += 1000;
		break;
	default:
		score /= 2;
	}
	return score > 1000000 ? 1000000 : score;
}

SEC("gbpf/admit") int GBPF_PROG(let_in, admit)
{
	if (ctx->tenants > 64) {
		return ctx->waited_ns > 30000000000ull ? GBPF_REJECT : GBPF_QUEUE;
	}
	if (ctx->weight > 10000) {
		ctx->weight = 10000;
	}
	return GBPF_ADMIT;
}

SEC("gbpf/queue_create") int GBPF_PROG(fresh, queue_create)
{
	if (ctx->priority < 0) {
		ctx->class_id = GBPF_CLASS_LATENCY;
	}
	return 0;
}

SEC("gbpf/retire") int GBPF_PROG(done, retire)
{
	ctx->linger_ns = ctx->flags & GBPF_F_MEASURED ? 100000 : 500000;
	return 0;
}

GBPF_LICENSE("GPL");
