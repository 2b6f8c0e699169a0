/* Figures by region of memory: aligned parts of 2^shift bytes, in a table of 65536 places. Regions
 * within 65536 of each other have different places; others may share one. All words are sums, so
 * that those of contexts and programs can be added. tags / count is the upper part of the region's
 * number, and squares shows whether that is the same for all accesses of the place: the sum of
 * squares exceeds count * mean^2 if any differs. `gbpf trace` knows the numbering. Include
 * gbpf.bpf.h before it. */
#ifndef GBPF_TRACERS_REGIONS_H
#define GBPF_TRACERS_REGIONS_H

#define REGIONS 65536
#define REGION_STEP 40503 /* moves the places of regions that are 65536 apart */

/* The struct begins with u64 count, tags, squares, spread: accesses of warps, and how many of them
 * reached beyond the region. Such an access counts in the region of its lowest address. */
#define REGION_MAP(value_type)                                                                     \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_ARRAY);                                                      \
		__uint(map_flags, GBPF_F_DEVICE);                                                  \
		__uint(max_entries, REGIONS);                                                      \
		__type(key, u32);                                                                  \
		__type(value, value_type);                                                         \
	} regions SEC(".maps");                                                                    \
                                                                                                   \
	static __always_inline value_type *region_of(u64 low, u64 high, u32 shift)                 \
	{                                                                                          \
		u64 id = low >> shift, tag = id / REGIONS;                                         \
		u32 k = (u32)(id + tag * REGION_STEP) % REGIONS;                                   \
		value_type *r = bpf_map_lookup_elem(&regions, &k);                                 \
                                                                                                   \
		if (r) {                                                                           \
			__sync_fetch_and_add(&r->count, 1);                                        \
			__sync_fetch_and_add(&r->tags, tag);                                       \
			__sync_fetch_and_add(&r->squares, tag *tag);                               \
			if (high >> shift != id) {                                                 \
				__sync_fetch_and_add(&r->spread, 1);                               \
			}                                                                          \
		}                                                                                  \
		return r;                                                                          \
	}

#endif
