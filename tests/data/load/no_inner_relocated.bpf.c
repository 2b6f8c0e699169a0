/* refuse: inner: an address in a map's declaration where no entry is */
#include "gbpf/gbpf.bpf.h"

u32 number = 1;

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	u32 *key;
	u64 *value;
} inner SEC(".maps") = { .key = &number };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
