/* A ring buffer's record is reserved and never submitted on one path. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_TENANT);
} events SEC(".maps");

struct event {
	u64 when, kernel;
};

SEC("gbpf/submit") int GBPF_PROG(report, submit)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		return GBPF_GO;
	}
	e->when = ctx->now_ns;
	e->kernel = ctx->kernel;
	if (ctx->kind != GBPF_KIND_KERNEL) {
		return GBPF_GO;
	}
	bpf_ringbuf_submit(e, 0);
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
