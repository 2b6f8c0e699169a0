/* A record is given back twice. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_TENANT);
} events SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(report, submit)
{
	u64 *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		return GBPF_GO;
	}
	*e = ctx->now_ns;
	if (ctx->held_ns > 1000000) {
		bpf_ringbuf_discard(e, 0);
	}
	bpf_ringbuf_submit(e, 0);
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
