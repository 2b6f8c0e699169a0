/* refuse: map outer: a map in shared memory cannot be in an array of maps */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, struct {
		__uint(type, GBPF_MAP_WARP_SCRATCH);
		__uint(map_flags, GBPF_F_DEVICE);
		__uint(max_entries, 4);
		__type(key, u32);
		__type(value, u64);
	});
} outer SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
