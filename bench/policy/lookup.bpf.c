/* Sequential lookups, each with a different key. LOOKUP selects the kind; 0: the same loop without
 * a lookup, as the control. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

#define NONE 0
#define ARRAY 1
#define HASH 2
#define TENANT 3      /* the tenant's own instance, in a tenant's hook */
#define TENANT_NONE 4 /* control of TENANT */
#define TENANT_ANY 5  /* gbpfd: any tenant's */

#define ENTRIES 4096

#if LOOKUP == ARRAY || LOOKUP == HASH || LOOKUP == TENANT || LOOKUP == TENANT_ANY
struct {
	__uint(type, LOOKUP == HASH ? GBPF_MAP_HASH : GBPF_MAP_ARRAY);
	__uint(max_entries, LOOKUP == TENANT_ANY ? 16 : ENTRIES);
#if LOOKUP == TENANT || LOOKUP == TENANT_ANY
	__uint(map_flags, GBPF_F_TENANT);
#endif
	__type(key, u32);
	__type(value, u64);
} map SEC(".maps");
#endif

static __always_inline u64 one(u32 key)
{
#if LOOKUP == NONE || LOOKUP == TENANT_NONE
	return key;
#else
	u64 *value;

#if LOOKUP == TENANT_ANY
	u32 first = key >> 3 & 15;

	value = gbpf_tenant_lookup(&map, key & 7, &first);
#else
	value = bpf_map_lookup_elem(&map, &key);
#endif
	return value ? *value : 0;
#endif
}

#define LOOP(first, n)                                                                                                      \
	({                                                                                                                  \
		u32 ___key = first;                                                                                         \
		u64 ___sum = 0;                                                                                             \
                                                                                                                            \
		for (u32 ___i = 0; ___i < n; ___i++) {                                                                      \
			___key = (___key * 5 + 1) & (ENTRIES - 1);                                                          \
			___sum += one(___key);                                                                              \
		}                                                                                                           \
		___sum;                                                                                                     \
	})

#if LOOKUP == TENANT || LOOKUP == TENANT_NONE
SEC("gbpf/submit")
int GBPF_PROG(lookup, submit)
{
	ctx->hold_ns = LOOP((u32)ctx->kernel, 64);
	return 0;
}
#else
u64 out;

SEC("gbpf/tick")
int GBPF_PROG(lookup, tick)
{
	out = LOOP((u32)ctx->epoch, 64);
	return 0;
}
#endif
