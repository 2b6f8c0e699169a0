/* refuse: map outer: entry 1 is number, which is no map */
#include "gbpf/gbpf.bpf.h"

u64 number = 1;

struct {
	__uint(type, GBPF_MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, struct {
		__uint(type, GBPF_MAP_ARRAY);
		__uint(max_entries, 4);
		__type(key, u32);
		__type(value, u64);
	});
} outer SEC(".maps") = { .values = { [1] = (void *)&number } };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
