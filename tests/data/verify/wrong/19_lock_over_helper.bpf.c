/* Others would wait while this one reads the clock. */
#include "gbpf/gbpf.bpf.h"

struct shared {
	struct bpf_spin_lock lock;
	u64 total;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, struct shared);
} box SEC(".maps");

SEC("gbpf/tick") int GBPF_PROG(add, tick)
{
	u32 key = 0;
	struct shared *s = bpf_map_lookup_elem(&box, &key);

	if (!s) {
		return 0;
	}
	bpf_spin_lock(&s->lock);
	s->total += bpf_ktime_get_ns();
	bpf_spin_unlock(&s->lock);
	return 0;
}

GBPF_LICENSE("GPL");
