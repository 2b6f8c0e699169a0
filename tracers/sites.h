/* Figures by site: a value for each of the first 255 sites of a hook in a kernel, and one for all
 * others. Sites are numbered in each kernel, so a tool with this map shows one kernel at a time.
 * Every multiprocessor has an instance of its own, so that warps do not wait for each other's
 * additions. Include gbpf.bpf.h before it. */
#ifndef GBPF_TRACERS_SITES_H
#define GBPF_TRACERS_SITES_H

#define SITES 256

/* The struct begins with u64 count, lines: executions, and the sum of their line numbers. Only sums
 * stay right when values of multiprocessors and programs are added, and lines / count is the line.
 */
#define SITE_MAP(value_type)                                                                       \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_SM_ARRAY);                                                   \
		__uint(map_flags, GBPF_F_DEVICE);                                                  \
		__uint(max_entries, SITES);                                                        \
		__type(key, u32);                                                                  \
		__type(value, value_type);                                                         \
	} sites SEC(".maps");                                                                      \
                                                                                                   \
	static __always_inline value_type *site_of(u32 site)                                       \
	{                                                                                          \
		u32 k = site < SITES ? site : SITES - 1;                                           \
                                                                                                   \
		return bpf_map_lookup_elem(&sites, &k);                                            \
	}

#define ADD(to, n) __sync_fetch_and_add(&(to), (u64)(n))

#endif
