/* Refused by the verifier: writes to a map value that may be NULL. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

SEC("gbpf/submit")
int GBPF_PROG(unsafe_submit, submit)
{
	u32 key = ctx->queue;
	u64 *mine = bpf_map_lookup_elem(&seen, &key);

	*mine = 1; /* not checked */
	return GBPF_GO;
}
