/* Counts barriers, and nothing else. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} barriers SEC(".maps");

SEC("gdev/barrier/*/before")
int GBPF_PROG(at_barrier, gdev_barrier)
{
	u32 k = 0;
	u64 *n = bpf_map_lookup_elem(&barriers, &k);

	if (n) {
		__sync_fetch_and_add(n, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
