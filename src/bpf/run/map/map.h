/* Maps: fixed geometry decided at load, memory in three regions that are shared differently.
 *
 * A policy version has up to three regions; map i lies in the one that its flags name, at a byte
 * offset which every process computes for itself from the definitions (ebpf_maps_layout), never
 * from the shared memory:
 *	GLOBAL	one memfd; gbpfd writes, everyone else maps it read-only (sealed against further
 *		writable maps)
 *	TENANT	one memfd per tenant; that tenant and gbpfd write
 *	DAEMON	plain memory of gbpfd
 * Memory of zeros is a valid empty map of every type. docs/MAPS.md says what lies in it and why it
 * stays sound whoever is killed or stopped where.
 *
 * What the compiler may do in line, with maps[i].data, .stride and .max_entries read or known:
 *	ARRAY without GBPF_F_EPOCH: element i begins at data + i * stride if i < max_entries.
 *	HISTOGRAM: likewise (stride 512); bucket b of row i is the u64 at data + i * 512 + b * 8.
 * Everything else goes through the helper: an epoch array (which copy depends on the call), a
 * THREAD_ARRAY (on the thread), hash tables. PROG_ARRAY has no memory. */
#ifndef GBPF_BPF_RUN_MAP_MAP_H
#define GBPF_BPF_RUN_MAP_MAP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define EBPF_NAME_BYTES 32
#define EBPF_MAX_ENTRIES 1000000u
#define EBPF_MAX_VALUE_BYTES 65536u
#define EBPF_MAX_REGION_BYTES (256u << 20)
#define EBPF_MAX_KEY_BYTES 512u

enum ebpf_region { EBPF_REGION_GLOBAL, EBPF_REGION_TENANT, EBPF_REGION_DAEMON, EBPF_REGIONS };

/* Fixed layout: travels in messages and in the policy image. */
struct ebpf_map_def {
	char name[EBPF_NAME_BYTES]; /* zero-terminated */
	uint32_t type;		    /* GBPF_MAP_* */
	uint32_t key_bytes;
	uint32_t value_bytes;
	uint32_t max_entries;
	uint32_t flags;	  /* GBPF_F_* */
	uint32_t is_data; /* .data/.bss/.rodata: one value, reached by EBPF_PSEUDO_MAP_VALUE too */
	uint32_t inner_1; /* ARRAY_OF_MAPS: 1 + index of a map whose shape all its maps have; else 0
			   */
	uint32_t lock_1;  /* 1 + offset of the struct bpf_spin_lock in a value; 0: none */
};

/* One map as a process sees it: private, derived from the definition. The JIT and the interpreter
 * read data, stride and max_entries of env->maps[i]; map handles that programs hold are pointers to
 * this struct. */
struct ebpf_map {
	uint8_t *data; /* borrowed: into the region's mapping in this process; NULL when the region
			  is absent */
	uint32_t stride;
	uint32_t max_entries;
	uint32_t key_bytes;
	uint32_t value_bytes;
	uint32_t type;
	uint32_t flags;
	uint32_t index;
	uint32_t region;	/* enum ebpf_region */
	uint64_t region_offset; /* bytes */

	/* Geometry of types with more than elements; offsets in bytes from data. */
	uint32_t bytes;	     /* all of it */
	uint32_t n_slots;    /* hash: buckets; queue: places; ring: blocks; a power of two */
	uint32_t head_off;   /* hash: heads of the buckets; queue, stack: their words */
	uint32_t pool_off;   /* which elements are taken (map_pool.h) */
	uint32_t elem_off;   /* first element; ring: first block */
	uint32_t key_off;    /* within an element */
	uint32_t value_off;  /* within an element */
	uint32_t copy_bytes; /* epoch array: of one copy; thread array: of one thread's; else 0 */
	uint32_t inner_1;    /* as in the definition */
	uint32_t lock_1;
	uint32_t touched; /* epoch array in gbpfd: publications since it was last written, from 1;
			     0: never */
};

#define EBPF_MAX_RING_BYTES (16u << 20)
#define EBPF_MAX_RECORD_BYTES 65536u /* and at most half of the ring */
#define EBPF_MAX_STACK_ENTRIES 65536u
#define EBPF_HIST_BUCKETS 64u
#define EBPF_THREAD_SLOTS 64u
#define EBPF_MAX_LPM_KEY_BYTES 260u /* with the prefix length */
#define EBPF_EPOCH_COPIES 4u

/* Which epoch the policy that runs on this thread uses; set by ebpf_policy_run for policies that
 * have epoch arrays. 0: none. */
struct ebpf_latch {
	uint64_t epoch;	   /* 1 + number of the epoch */
	uint32_t outlived; /* the last run outlived three publications: what it read is mixed */
};
extern TLS_FAST struct ebpf_latch ebpf_latch;

/* Checks a definition: type known, sizes and flags in range and consistent. 0 or -EINVAL / -E2BIG.
 */
int ebpf_map_check(const struct ebpf_map_def *def);

/* Fills maps[0..n) but for ->data, and the size of each region in bytes (multiple of 4096, 0 when
 * unused). 0, -EINVAL, -E2BIG. Deterministic: every process computes the same. */
int ebpf_maps_layout(const struct ebpf_map_def *defs, unsigned n, struct ebpf_map *maps,
		     size_t ret_region_bytes[EBPF_REGIONS]);

/* Sets ->data of all maps of a region to base + region_offset; base NULL clears them. */
void ebpf_maps_bind(struct ebpf_map *maps, unsigned n, enum ebpf_region region, void *base);

/* A key may lie in memory that another process changes at any time (a tenant's map): it is read
 * once, and the compiler is kept from reading it again between the check and the use. */
static inline uint32_t ebpf_map_index(const void *key)
{
	uint32_t index;

	memcpy(&index, key, sizeof(index));
	__asm__ volatile("" : "+r"(index));
	return index;
}

/* m as it lies in another mapping of its region (a tenant's, in gbpfd). */
void ebpf_map_at(struct ebpf_map *out, const struct ebpf_map *m, void *region_base);

/* The operations behind the helpers, also for tools. None waits, allocates or enters the kernel;
 * each is safe on memory that others write, even at random. What is not offered by a type is
 * -EINVAL (lookup: NULL).
 *
 * lookup: pointer to the value or NULL; it stays within the map for as long as the map is mapped,
 * also when the element is deleted (it may then show the value of another key). Of an
 * ARRAY_OF_MAPS: the struct ebpf_map; map must lie in its array of maps. Of an epoch array: in the
 * copy that this thread has latched, else the published one.
 *
 * update: 0 or -EINVAL, -ENOENT (index, or EXIST and absent), -EEXIST, -EPERM (constant, or mapped
 * read-only here), -E2BIG (full), -EBUSY (others change this bucket all the time). Values of up to
 * 8 bytes are stored atomically. The struct bpf_spin_lock in a value keeps its contents. */
void *ebpf_map_lookup(const struct ebpf_map *map, const void *key);
int ebpf_map_update(const struct ebpf_map *map, const void *key, const void *value, uint64_t flags);
/* 0, -ENOENT, -EPERM, -EBUSY. */
int ebpf_map_delete(const struct ebpf_map *map, const void *key);
/* flags 0, or BPF_EXIST (2; queues alone): drops the oldest when it is full. 0, -E2BIG, -EBUSY. */
int ebpf_map_push(const struct ebpf_map *map, const void *value, uint64_t flags);
/* 0 or -ENOENT, -EPERM, -EBUSY. */
int ebpf_map_pop(const struct ebpf_map *map, void *value);
int ebpf_map_peek(const struct ebpf_map *map, void *value);
/* Counts value in a row of a HISTOGRAM. 0, -ENOENT, -EPERM. */
int ebpf_map_hist_add(const struct ebpf_map *map, uint32_t row, uint64_t value);

/* Walking a map of any type, for tools and bpf_for_each_map_elem: slots 0..ebpf_map_slots() - 1;
 * each gives 1 (key and value are copied out; either may be NULL), 0 (nothing there) or -EIO (the
 * memory makes no sense). A map that changes meanwhile may show an element twice or not at all.
 * Values of a THREAD_ARRAY are summed over its threads. Queues begin with what pop would give;
 * stacks too (bounded work: one walk to the slot). */
uint32_t ebpf_map_slots(const struct ebpf_map *map);
int ebpf_map_slot(const struct ebpf_map *map, uint32_t slot, void *key, void *value);
/* The value as tools show it. 0 or -ENOENT, -EINVAL. */
int ebpf_map_read(const struct ebpf_map *map, const void *key, void *value);
/* Elements (an array: max_entries). */
uint32_t ebpf_map_count(const struct ebpf_map *map);
/* Removes every element; arrays are set to 0. 0, -EPERM, -EINVAL (nothing to clear). */
int ebpf_map_clear(const struct ebpf_map *map);
/* Adds the contents of from to to, which has the same definition and which nobody else uses yet.
 * A ring's records and an array of maps are not copied. 0, -EINVAL (not alike), -E2BIG. */
int ebpf_map_copy(const struct ebpf_map *to, const struct ebpf_map *from);

/* Epoch arrays (gbpfd alone, one thread): what its programs have written since the last call
 * becomes the next epoch, for all maps at once. Cheap when nothing was touched. Returns the epoch.
 */
uint64_t ebpf_maps_publish(struct ebpf_map *maps, unsigned n);
/* The word of the published epoch, or NULL when no map has epochs or none is bound. */
uint64_t *ebpf_maps_epoch(const struct ebpf_map *maps, unsigned n);

#endif
