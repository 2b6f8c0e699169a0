/* Parsing without strings: an operator writes "class:weight,..." as bytes, tick decodes it. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct rule {
	u8 text[64];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rule);
} rules SEC(".maps");

u32 weights[8];
u32 n_rules, errors;

SEC("gbpf/tick") int GBPF_PROG(parse, tick)
{
	u32 zero = 0, number = 0, key = 0, have_key = 0, n = 0, bad = 0;
	struct rule *r = bpf_map_lookup_elem(&rules, &zero);

	if (!r) {
		return 0;
	}
	for (int i = 0; i < 64; i++) {
		u8 c = r->text[i];

		if (c >= '0' && c <= '9') {
			number = number * 10 + (c - '0');
			if (number > 10000) {
				number = 10000;
			}
		} else if (c == ':') {
			key = number;
			have_key = 1;
			number = 0;
		} else if (c == ',' || c == 0) {
			if (have_key && key < 8) {
				weights[key] = number;
				n++;
			} else if (number) {
				bad++;
			}
			number = 0;
			have_key = 0;
			if (c == 0) {
				break;
			}
		} else {
			bad++;
		}
	}
	n_rules = n;
	errors = bad;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(apply, submit)
{
	u32 w = weights[ctx->class_id & 7];

	return w && w < 50 && ctx->lc_open ? GBPF_HOLD : GBPF_GO;
}
