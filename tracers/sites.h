/* Figures by place: a value for each line of a kernel with sites of the tool or, without line
 * information, for each site. The field `place` of contexts numbers them for all kernels of a
 * program, and the map KERNEL_PLACES lists them; the last value is that of all places beyond the
 * 511 that have an entry. Every multiprocessor has an instance of its own, so that warps do not
 * wait for each other's additions. `gbpf trace` knows the number. Include gbpf.bpf.h before it. */
#ifndef GBPF_TRACERS_SITES_H
#define GBPF_TRACERS_SITES_H

#define SITE_PLACES 512

/* The struct begins with u64 count: executions. Only sums stay right when values of multiprocessors
 * are added. */
#define PLACE_MAP(value_type)                                                                      \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_SM_ARRAY);                                                   \
		__uint(map_flags, GBPF_F_DEVICE);                                                  \
		__uint(max_entries, SITE_PLACES);                                                  \
		__type(key, u32);                                                                  \
		__type(value, value_type);                                                         \
	} sites SEC(".maps");                                                                      \
                                                                                                   \
	GBPF_KERNEL_PLACES(SITE_PLACES);                                                           \
                                                                                                   \
	static __always_inline value_type *site_of(u32 place)                                      \
	{                                                                                          \
		return bpf_map_lookup_elem(&sites, &place);                                        \
	}

#define ADD(to, n) __sync_fetch_and_add(&(to), (u64)(n))

#endif
