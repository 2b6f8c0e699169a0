/* refuse: map outer: the shape of its maps is not declared */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, u32);
} outer SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
