/* refuse: locks are for maps that gbpfd alone uses: struct bpf_spin_lock */
#include "gbpf/gbpf.bpf.h"

struct value {
	u64 sum;
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, 0);
	__type(key, u32);
	__type(value, struct value);
} locked SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
