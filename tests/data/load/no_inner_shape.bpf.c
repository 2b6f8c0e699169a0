/* refuse: map outer: entry 0 is inner, which has not the shape that is declared */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 5);
	__type(key, u32);
	__type(value, u64);
} inner SEC(".maps");

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
} outer SEC(".maps") = { .values = { (void *)&inner } };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
