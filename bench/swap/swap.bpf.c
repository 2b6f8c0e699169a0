/* For `gbpf bench dev swap`: its number is stored in the code, in a constant, in global memory and,
 * once it has been called, in the tenant's memory. The bench writes another number into each copy
 * of the object. hold_ns returns the number to the caller, or 0xbad if the four differ. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 in_constant = 0x5eed0001a5a5a5a5ULL;
u64 in_data = 0x5eed0002a5a5a5a5ULL;

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} in_tenant SEC(".maps");

SEC("gbpf/submit")
int GBPF_PROG(number, submit)
{
	volatile u64 *data = &in_data;
	u64 code, *tenant;
	u32 key = 0;

	asm volatile("%0 = 0x5eed0003a5a5a5a5 ll" : "=r"(code));
	tenant = bpf_map_lookup_elem(&in_tenant, &key);
	if (tenant && !*tenant) {
		*tenant = code;
	}
	ctx->hold_ns =
		tenant && *tenant == code && *data == code && in_constant == code ? code : 0xbad;
	return GBPF_HOLD;
}
