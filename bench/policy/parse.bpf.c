/* Parses "key=number key=number ..." from 64 bytes of text: finds two keys and adds up their
 * numbers. Its state is in memory, as in real policies, because the verifier follows every value of
 * a local variable through a loop. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(texts);

struct parser {
	u64 weight, limit, number;
	volatile u32 key, in_number; /* volatile: otherwise clang keeps them in registers */
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct parser);
} parsers SEC(".maps");

static __always_inline void end_of_word(struct parser *p)
{
	if (p->key == ('w' << 16 | 'g' << 8 | 't')) {
		p->weight += p->number;
	} else if (p->key == ('l' << 16 | 'i' << 8 | 'm')) {
		p->limit += p->number;
	}
	p->key = 0;
	p->in_number = 0;
}

SEC("gbpf/tick")
int GBPF_PROG(parse, tick)
{
	struct input *in = INPUT_OF(texts, ctx);
	u32 zero = 0;
	struct parser *p = bpf_map_lookup_elem(&parsers, &zero);

	if (!in || !p) {
		return 0;
	}
	p->weight = p->limit = p->key = p->in_number = 0;
	for (u32 i = 0; i < 64; i++) {
		u8 c = in->b[i];

		if (c == '=') {
			p->in_number = 1;
			p->number = 0;
		} else if (c == ' ') {
			end_of_word(p);
		} else if (!p->in_number) {
			p->key = (p->key << 8 | c) & 0xffffff;
		} else if (c >= '0' && c <= '9') {
			p->number = p->number * 10 + (c - '0');
		}
	}
	in->out = p->weight * 65536 + p->limit;
	return 0;
}
