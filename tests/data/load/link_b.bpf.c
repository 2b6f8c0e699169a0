/* The other half: a map and a variable of the first, a function for it. */
#include "gbpf/gbpf.bpf.h"

extern struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} counts __attribute__((section(".maps")));

extern u64 shared_total;
const volatile u64 limits[4] = { 5, 7, 9, 5 };

__noinline u64 limit_of(u32 class_id)
{
	return limits[class_id & 3] + shared_total;
}

SEC("gbpf/retire") int GBPF_PROG(done, retire)
{
	u32 key = 1;
	u64 *v = bpf_map_lookup_elem(&counts, &key);

	if (v) {
		*v += ctx->count;
	}
	return 0;
}

GBPF_LICENSE("GPL");
