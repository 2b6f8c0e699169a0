/* args: with which arguments kernels are launched. Block 0 of each launch counts the values of the kernel's first 12
 * parameters: integers and addresses as they are, floating-point numbers as their bits, of a structure the first bytes.
 * Values that have not come for long make room for others if there are too many; launches are counted for each kernel,
 * so that one sees how many are not among the values. */
#include <gbpf/gbpf.bpf.h>

#define PARAMS 12
#define VALUES 8192
#define KERNELS 1024

struct value {
	u64 kernel, value;
	u32 index, bytes;
};

struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, VALUES);
	__type(key, struct value);
	__type(value, u64);
} values SEC(".maps");

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, KERNELS);
	__type(key, u64);
	__type(value, u64);
} launches SEC(".maps");

SEC("gdev/block_enter")
int GBPF_PROG(begin, gdev_block_enter)
{
	u64 at[PARAMS], kernel = ctx->kernel;
	u32 bytes[PARAMS];

	if (ctx->block) {
		return 0;
	}
#define READ(i) at[i] = gbpf_param(i), bytes[i] = gbpf_param_bytes(i)
	READ(0), READ(1), READ(2), READ(3), READ(4), READ(5), READ(6), READ(7);
	READ(8), READ(9), READ(10), READ(11);
	gbpf_key_add(&launches, &kernel, 1);
	for (u32 i = 0; i < PARAMS; i++) {
		struct value key = { .kernel = kernel, .value = at[i], .index = i, .bytes = bytes[i] };

		if (!bytes[i]) {
			break;
		}
		gbpf_key_add(&values, &key, 1);
	}
	return 0;
}

GBPF_LICENSE("MIT");
