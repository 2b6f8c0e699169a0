/* refuse: locks are for arrays and hash tables: struct bpf_spin_lock */
#include "gbpf/gbpf.bpf.h"

struct value {
	u64 sum;
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, GBPF_MAP_LPM_TRIE);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u64);
	__type(value, struct value);
} locked SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
