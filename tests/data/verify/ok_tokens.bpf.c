/* accept: a token bucket that gbpfd refills and submit spends. */
#include "gbpf/gbpf.bpf.h"

struct bucket {
	u64 tokens_ns;
	u64 used_ns;
	u32 class_id;
	u32 held;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

const volatile u64 share_ns = 500000;
const volatile u64 limit_ns = 2000000;

SEC("gbpf/submit") int GBPF_PROG(spend, submit)
{
	u32 key = ctx->class_id;
	struct bucket *b = bpf_map_lookup_elem(&buckets, &key);
	u64 est = ctx->est_ns ? ctx->est_ns : 10000;

	if (!b) {
		return GBPF_GO;
	}
	if (b->tokens_ns >= est) {
		b->tokens_ns -= est;
		__sync_fetch_and_add(&b->used_ns, est);
		return GBPF_GO;
	}
	b->held++;
	ctx->hold_ns = est - b->tokens_ns;
	return GBPF_HOLD;
}

SEC("gbpf/tick") int GBPF_PROG(refill, tick)
{
	u32 n = ctx->tenants;

	for (u32 t = 0; t < 1024; t++) {
		for (u32 key = 0; key < 4; key++) {
			struct bucket *b;

			if (t >= n) {
				return 0;
			}
			b = gbpf_tenant_lookup(&buckets, t, &key);
			if (!b) {
				continue;
			}
			b->tokens_ns += share_ns;
			if (b->tokens_ns > limit_ns) {
				b->tokens_ns = limit_ns;
			}
		}
	}
	return 0;
}

GBPF_LICENSE("GPL");
