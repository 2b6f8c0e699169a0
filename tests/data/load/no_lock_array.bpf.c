/* refuse: a lock is a member of a map's value */
#include "gbpf/gbpf.bpf.h"

struct value {
	u64 sum;
	struct bpf_spin_lock lock[1];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, struct value);
} locked SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
