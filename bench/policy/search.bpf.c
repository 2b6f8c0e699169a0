/* Binary search for 16 numbers in a sorted table of 64. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

struct table {
	u32 v[64];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct table);
} sorted SEC(".maps");

SEC("gbpf/tick")
int GBPF_PROG(search, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u32 zero = 0;
	struct table *t = bpf_map_lookup_elem(&sorted, &zero);
	u64 sum = 0;

	if (!in || !t) {
		return 0;
	}
	for (u32 i = 0; i < 16; i++) {
		u32 v = in->h[i], low = 0;

		for (u32 step = 32; step; step >>= 1) {
			if (t->v[(low + step) & 63] <= v) {
				low += step;
			}
		}
		sum = sum * 7 + low;
	}
	in->out = sum;
	return 0;
}
