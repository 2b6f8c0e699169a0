/* refuse: map counts: each GPU has its own ring buffer */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_DAEMON | GBPF_F_ALL_GPUS);
} counts SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
