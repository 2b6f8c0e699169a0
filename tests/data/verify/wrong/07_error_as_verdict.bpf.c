/* A negative number is no verdict. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} classes SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(choose, submit)
{
	u32 key = ctx->class_id;
	u64 *v = bpf_map_lookup_elem(&classes, &key);

	if (!v) {
		return -1;
	}
	return *v ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
