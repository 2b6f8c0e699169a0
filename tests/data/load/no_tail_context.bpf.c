/* refuse: other is a program of the hook submit, but takes a struct gbpf_retire_ctx */
#include "gbpf/gbpf.bpf.h"

SEC("?gbpf/submit") int GBPF_PROG(other, retire)
{
	return 0;
}

struct {
	__uint(type, GBPF_MAP_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, int(void *));
} jumps SEC(".maps") = { .values = { [0] = (void *)&other } };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	bpf_tail_call(ctx, &jumps, 0);
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
