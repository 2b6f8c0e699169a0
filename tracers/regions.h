/* Figures by region of memory: aligned parts of 2^shift bytes, in a table of 65536 places. Regions
 * within 65536 of each other have different places; others may share one. The first access of a
 * place makes its region the place's owner, which nothing changes after that, so that the table is
 * right whenever it is read; accesses of other regions there are only counted. All words are sums,
 * so that those of contexts and programs can be added: owner / owners is the upper part of the
 * region's number plus 1, and squares, the sum of squares of owners, shows whether they agree.
 * `gbpf trace` knows the numbering. Include gbpf.bpf.h before it. */
#ifndef GBPF_TRACERS_REGIONS_H
#define GBPF_TRACERS_REGIONS_H

#define REGIONS 65536
#define REGION_STEP 40503 /* moves the places of regions that are 65536 apart */

/* The struct begins with u64 count, mixed, owner, owners, squares, spread: accesses of warps, those
 * of other regions in this place, the owner, and how many accesses reached beyond the region. Such
 * an access counts in the region of its lowest address. region_of() counts an access, and returns
 * NULL if it is one of another region. */
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
		u64 id = low >> shift, tag = id / REGIONS, own = tag + 1, owner;                   \
		u32 k = (u32)(id + tag * REGION_STEP) % REGIONS;                                   \
		value_type *r = bpf_map_lookup_elem(&regions, &k);                                 \
                                                                                                   \
		if (!r) {                                                                          \
			return r;                                                                  \
		}                                                                                  \
		owner = r->owner ? r->owner : __sync_val_compare_and_swap(&r->owner, 0, own);      \
		if (!owner) {                                                                      \
			__sync_fetch_and_add(&r->owners, 1);                                       \
			__sync_fetch_and_add(&r->squares, own *own);                               \
		} else if (owner != own) {                                                         \
			__sync_fetch_and_add(&r->mixed, 1);                                        \
			return 0;                                                                  \
		}                                                                                  \
		__sync_fetch_and_add(&r->count, 1);                                                \
		if (high >> shift != id) {                                                         \
			__sync_fetch_and_add(&r->spread, 1);                                       \
		}                                                                                  \
		return r;                                                                          \
	}

#endif
