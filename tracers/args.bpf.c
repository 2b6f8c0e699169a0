/* args: with which arguments kernels are launched. Block 0 of each launch counts the values of the kernel's first 12
 * parameters: integers and addresses as they are, floating-point numbers as their bits, of a structure the first bytes.
 * Values that have not come for long make room for others if there are too many; launches are counted for each kernel,
 * so that one sees how many are not among the values. */
#include <gbpf/gbpf.bpf.h>

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

/* Returns 0 for a parameter that the kernel does not have. */
static __always_inline int count(u64 kernel, u32 index, u64 value, u32 bytes)
{
	struct value key = { .kernel = kernel, .value = value, .index = index, .bytes = bytes };

	if (bytes) {
		gbpf_key_add(&values, &key, 1);
	}
	return bytes != 0;
}

/* Sizes are constants of a form, so the code has as many of these as the kernel has parameters. A loop would need an
 * array of values, which lies in memory, and an entry stub of machine code has none. */
#define COUNT(i)                                                                                                       \
	if (!count(kernel, i, gbpf_param(i), gbpf_param_bytes(i))) {                                                   \
		return 0;                                                                                              \
	}

SEC("gdev/block_enter")
int GBPF_PROG(begin, gdev_block_enter)
{
	u64 kernel = ctx->kernel;

	if (ctx->block) {
		return 0;
	}
	gbpf_key_add(&launches, &kernel, 1);
	COUNT(0)
	COUNT(1)
	COUNT(2)
	COUNT(3)
	COUNT(4)
	COUNT(5)
	COUNT(6)
	COUNT(7)
	COUNT(8)
	COUNT(9)
	COUNT(10)
	COUNT(11)
	return 0;
}

GBPF_LICENSE("MIT");
