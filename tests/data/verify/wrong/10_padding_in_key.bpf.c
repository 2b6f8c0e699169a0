/* The compiler leaves four bytes of padding between the members, which are uninitialized. */
#include "gbpf/gbpf.bpf.h"

struct id {
	u32 queue;
	u64 kernel;
};

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 64);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, struct id);
	__type(value, u64);
} seen SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(lookup, submit)
{
	struct id key;
	u64 *n;

	key.queue = ctx->queue;
	key.kernel = ctx->kernel;
	n = bpf_map_lookup_elem(&seen, &key);
	return n && *n > 10 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
