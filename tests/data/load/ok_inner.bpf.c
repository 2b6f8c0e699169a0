/* accept: an array of maps with its first entries. */
#include "gbpf/gbpf.bpf.h"

struct inner {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, u32);
	__array(values, struct inner);
} both SEC(".maps") = { .values = { &second, (void *)0, &first } };

/* Nothing in it yet; its members look like those above. */
struct {
	__uint(type, GBPF_MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, struct inner);
} none SEC(".maps");

static u64 *find(void *maps, u32 which)
{
	u32 zero = 0;
	void *map = bpf_map_lookup_elem(maps, &which);

	return map ? bpf_map_lookup_elem(map, &zero) : (void *)0;
}

SEC("gbpf/tick") int GBPF_PROG(count, tick)
{
	u64 *v = find(&both, 0);

	if (v) {
		*v += 1;
	}
	v = find(&both, 2);
	if (v) {
		*v += 10;
	}
	return 0;
}

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	u64 *v = find(&both, ctx->queue), *w = find(&none, 0);

	return w ? 1 : v ? *v & 1023 : 1000;
}

GBPF_LICENSE("GPL");
