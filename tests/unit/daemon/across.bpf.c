/* Maps that the instances of all GPUs share, next to one that each has. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_DAEMON | GBPF_F_ALL_GPUS);
	__type(key, u32);
	__type(value, u64);
} begun SEC(".maps");

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 16);
	__uint(map_flags, GBPF_F_DAEMON | GBPF_F_ALL_GPUS);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(key, u32);
	__type(value, u64);
} own SEC(".maps");

SEC("gbpf/init")
int GBPF_PROG(across_init, init)
{
	u32 key = 0, gpu = ctx->gpu;
	u64 *all = bpf_map_lookup_elem(&begun, &key);
	u64 *one = bpf_map_lookup_elem(&own, &key);
	u64 value = 20 + gpu;

	if (all && one) {
		++*all;
		++*one;
	}
	return bpf_map_update_elem(&seen, &gpu, &value, 0) ? -1 : 0;
}
