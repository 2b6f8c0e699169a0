/* A token bucket for each of 64 keys: refilled by the time that passed, with a burst. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

struct bucket {
	u64 tokens; /* thousandths */
	u64 filled_ns;
	u64 rate; /* tokens per millisecond */
	u64 refused;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

const volatile u64 burst = 50000;
const volatile u64 default_rate = 3;

SEC("gbpf/tick")
int GBPF_PROG(token_bucket, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u64 now = ctx->now_ns, taken = 0;

	if (!in) {
		return 0;
	}
	for (u32 i = 0; i < 4; i++) {
		u32 key = in->h[i] & 63;
		struct bucket *b = bpf_map_lookup_elem(&buckets, &key);
		u64 cost = 1000 + (in->h[i] >> 20), passed;

		if (!b) {
			return 0;
		}
		if (!b->rate) {
			b->rate = default_rate + (key & 7);
		}
		passed = now - b->filled_ns;
		if (passed > 100000000) {
			passed = 100000000;
		}
		b->tokens += passed * b->rate / 1000;
		b->filled_ns = now;
		if (b->tokens > burst) {
			b->tokens = burst;
		}
		if (b->tokens < cost) {
			b->refused++;
		} else {
			b->tokens -= cost;
			taken += cost;
		}
	}
	in->out = taken;
	return 0;
}
