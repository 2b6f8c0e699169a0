/* refuse: its values cannot have a struct bpf_timer */
#include "gbpf/gbpf.bpf.h"

struct bpf_timer {
	u64 opaque[2];
};

struct value {
	u64 sum;
	struct bpf_timer timer;
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
