/* Counts 16 values in 32 buckets, and keeps minimum, maximum and sum. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

struct histogram {
	u64 count[32];
	u64 least, largest, sum;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct histogram);
} histograms SEC(".maps");

SEC("gbpf/tick")
int GBPF_PROG(histogram, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u32 key = (u32)ctx->period_ns & 3;
	struct histogram *h = bpf_map_lookup_elem(&histograms, &key);

	if (!in || !h) {
		return 0;
	}
	for (u32 i = 0; i < 16; i++) {
		u32 v = in->h[i] * 0x9e3779b1u;

		h->count[v >> 27]++;
		h->sum += v;
		if (v > h->largest) {
			h->largest = v;
		}
		if (v < h->least) {
			h->least = v;
		}
	}
	return 0;
}
