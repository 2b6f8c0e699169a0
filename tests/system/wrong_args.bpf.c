/* Reads an argument that the kernel scale does not have. */
#include <gbpf/gbpf.bpf.h>

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, 64);
	__type(key, u64);
	__type(value, u64);
} args SEC(".maps");

SEC("gdev/block_enter/scale")
int GBPF_PROG(enter, gdev_block_enter)
{
	u64 n = gbpf_arg(16, 4), address = 1000000;

	gbpf_key_add(&args, &n, 1);
	if (gbpf_arg(0, 8)) {
		gbpf_key_add(&args, &address, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
