/* Maps of every scope, with types to print; init counts what it finds, exit leaves a note. Built
 * a second time with CHANGED: one map has other values, one is missing, one variable is new. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

enum colour { RED, GREEN = 7 };

struct flow {
	u32 tenant;
	u32 weight;
	u64 bytes;
	char name[8];
	u16 parts[2];
	enum colour colour;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__type(key, u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, u64);
} own SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1000000);
	__type(key, u32);
	__type(value, u64);
} many SEC(".maps");

#ifdef CHANGED
struct pair {
	u32 high, low;
};
#else
struct pair {
	u32 low, high;
};
#endif

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct pair);
} pairs SEC(".maps");

#ifdef CHANGED
u64 fresh = 3;
#else
struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} gone SEC(".maps");
#endif

const volatile u64 limit = 7;
u64 started;
u64 marker = 5;

SEC("gbpf/init")
int GBPF_PROG(keeping_init, init)
{
	u32 zero = 0, one = 1;
	u64 *mine = bpf_map_lookup_elem(&own, &zero);
	struct flow *f = bpf_map_lookup_elem(&flows, &one);
	struct pair *p = bpf_map_lookup_elem(&pairs, &zero);
	u64 *big = bpf_map_lookup_elem(&many, &one);
#ifndef CHANGED
	u64 *last = bpf_map_lookup_elem(&gone, &zero);

	if (last) {
		*last = 1;
	}
#else
	started += fresh - 3;
#endif
	started += 1;
	if (mine) {
		*mine += 1;
	}
	if (f && !f->weight) {
		f->weight = 100;
		f->colour = GREEN;
		f->name[0] = 'a';
		f->name[1] = 'b';
	}
	if (p && !p->low) {
		p->low = 1;
		p->high = 2;
	}
	if (big) {
		*big = started;
	}
	gbpf_note(3, ctx->kept_maps + 1);
	return 0;
}

SEC("gbpf/exit")
int GBPF_PROG(keeping_exit, exit)
{
	gbpf_note(4, ctx->reason + 10);
	return 0;
}

SEC("gbpf/submit")
int GBPF_PROG(keeping_submit, submit)
{
	u32 key = 1;
	u64 *mine = bpf_map_lookup_elem(&seen, &key);

	if (mine) {
		*mine += marker;
	}
	return limit > 3 ? GBPF_GO : GBPF_HOLD;
}
