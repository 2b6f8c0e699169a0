/* A ring buffer belongs to each tenant or to gbpfd. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

SEC("gbpf/tick") int GBPF_PROG(report, tick)
{
	u64 now = ctx->now_ns;

	bpf_ringbuf_output(&events, &now, sizeof(now), 0);
	return 0;
}

GBPF_LICENSE("GPL");
