/* Keeps the number of the group that the last launch of each program was of, plus 1. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} of_group SEC(".maps");

static __always_inline void keep(u32 at, u32 group)
{
	u64 *v = bpf_map_lookup_elem(&of_group, &at);

	if (v) {
		*v = group + 1;
	}
}

SEC("gbpf/submit")
int GBPF_PROG(see, submit)
{
	keep(0, ctx->group);
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(see_end, retire)
{
	keep(1, ctx->group);
	return 0;
}

GBPF_LICENSE("MIT");
