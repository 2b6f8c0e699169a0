/* refuse: map jumps: values is not written with __array() */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	u64 values[2];
} jumps SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
