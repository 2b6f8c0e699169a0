/* refuse: map jumps: entry 1 is value, which is no program */
#include "gbpf/gbpf.bpf.h"

u64 value = 1;

struct {
	__uint(type, GBPF_MAP_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(void *));
} jumps SEC(".maps") = { .values = { [1] = (void *)&value } };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	bpf_tail_call(ctx, &jumps, 0);
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
