/* A record's size must be known when the policy is loaded. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_TENANT);
} events SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(report, submit)
{
	u64 *e = bpf_ringbuf_reserve(&events, 8 * (1 + (ctx->kind & 7)), 0);

	if (e) {
		*e = ctx->now_ns;
		bpf_ringbuf_submit(e, 0);
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
