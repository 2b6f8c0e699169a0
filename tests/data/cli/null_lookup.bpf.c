/* Refused: the result of a lookup is used before it is compared with NULL. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
	__uint(map_flags, GBPF_F_TENANT);
} seen SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(forgot_null, submit)
{
	u32 key = 0;
	u64 *n = bpf_map_lookup_elem(&seen, &key);

	*n += 1;
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
