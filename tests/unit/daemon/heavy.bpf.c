/* Maps of the maximum size, for processes that fill them. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct wide {
	u64 n[2048];
};

struct block {
	u8 bytes[65536];
};

struct {
	__uint(type, GBPF_MAP_THREAD_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct wide);
} threads SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 960);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct block);
} memory SEC(".maps");

SEC("gbpf/submit")
int GBPF_PROG(heavy_submit, submit)
{
	return GBPF_GO;
}
