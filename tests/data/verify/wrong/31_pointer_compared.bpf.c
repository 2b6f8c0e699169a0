/* A comparison of an address with a number would reveal the address. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} verdicts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(choose, submit)
{
	u32 key = ctx->class_id;
	u64 *v = bpf_map_lookup_elem(&verdicts, &key);

	if ((u64)v < 4096) {
		return GBPF_GO;
	}
	return *v ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
