/* Sorts 16 numbers (insertion sort), and sums them up weighted by their positions. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

struct sorted {
	u32 v[16];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sorted);
} scratch SEC(".maps");

SEC("gbpf/tick")
int GBPF_PROG(sort16, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u32 zero = 0;
	struct sorted *s = bpf_map_lookup_elem(&scratch, &zero);
	u64 sum = 0;

	if (!in || !s) {
		return 0;
	}
	for (u32 i = 0; i < 16; i++) {
		u32 v = in->h[i];
		u32 j = i;

		for (; j > 0 && j < 16 && s->v[j - 1] > v; j--) {
			s->v[j] = s->v[j - 1];
		}
		s->v[j & 15] = v;
	}
	for (u32 i = 0; i < 16; i++) {
		sum += (u64)s->v[i] * (i + 1);
	}
	in->out = sum;
	return 0;
}
