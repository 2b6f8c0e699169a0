/* Maps: their geometry is fixed at load, and their memory lies in up to three regions per policy
 * version that are shared differently.
 *
 * The flags of a map select its region. Every process computes the byte offset in the region from
 * the definitions (ebpf_maps_layout), never from shared memory:
 *
 * GLOBAL: one memfd; gbpfd writes, all other processes map it read-only (sealed against further
 * writable mappings).
 *
 * TENANT: one memfd per tenant; that tenant and gbpfd write. A map with GBPF_F_DEVICE has its copy
 * for gbpfd and tools here: the map itself is in memory of the GPU, at the same offset of a block
 * with the region's layout. Maps with GBPF_F_HOST are in pinned host memory instead; their copies
 * are the last ones of the region, in pages of their own.
 *
 * DAEMON: plain memory of gbpfd.
 *
 * Memory of zeros is a valid empty map of every type. docs/MAPS.md describes the layouts and why
 * they stay consistent if a process is killed or stopped at any point.
 *
 * The compiler may inline these lookups, with maps[i].data, .stride and .max_entries read or
 * constant:
 *
 * ARRAY without GBPF_F_EPOCH: element i begins at data + i * stride if i < max_entries.
 *
 * HISTOGRAM: likewise (stride 512); bucket b of row i is the u64 at data + i * 512 + b * 8.
 *
 * SM_ARRAY, WARP_ARRAY: likewise in instance k, which begins at data + k * copy_bytes; k is the
 * number of the multiprocessor modulo EBPF_SM_SLOTS, or this times EBPF_WARP_SLOTS plus the warp's
 * place.
 *
 * BLOCK_ARRAY, GPU_THREAD_ARRAY: as ARRAY, where i is the number of the block or thread.
 *
 * WARP_SCRATCH: likewise, in a warp's part of the block's shared memory; it has no other memory.
 *
 * All other lookups call the helper: in an epoch array the copy depends on the call, in a
 * THREAD_ARRAY on the thread. PROG_ARRAY has no memory. */
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

/* Each GPU has its own, except for ALL_GPUS, which a version has once, like DAEMON for gbpfd's
 * programs alone. */
enum ebpf_region {
	EBPF_REGION_GLOBAL,
	EBPF_REGION_TENANT,
	EBPF_REGION_DAEMON,
	EBPF_REGION_ALL_GPUS,
	EBPF_REGIONS
};
#define EBPF_NO_REGIONS                                                                            \
	{                                                                                          \
		-1, -1, -1, -1                                                                     \
	} /* descriptors, all absent */

/* Definition of a map. Fixed layout: part of messages and of the policy image. */
struct ebpf_map_def {
	char name[EBPF_NAME_BYTES]; /* zero-terminated */
	uint32_t type;		    /* GBPF_MAP_* */
	uint32_t key_bytes;
	uint32_t value_bytes;
	uint32_t max_entries;
	uint32_t flags;	  /* GBPF_F_* */
	uint32_t is_data; /* .data/.bss/.rodata: one value, also reached by EBPF_PSEUDO_MAP_VALUE */
	uint32_t inner_1; /* ARRAY_OF_MAPS: 1 + index of a map with the shape of all members; else 0
			   */
	uint32_t lock_1;  /* 1 + offset of the struct bpf_spin_lock in a value; 0: none */
};

struct ebpf_map_type;

/* The state of a hash table's function after its seed (map_seed.h). */
struct ebpf_seed {
	uint64_t a, b, c, d;
};

/* A map in one process: private, derived from the definition. The JIT and the interpreter read
 * data, stride and max_entries of env->maps[i]; map handles in programs are pointers to this
 * struct. */
struct ebpf_map {
	uint8_t *data; /* borrowed: in this process's mapping of the region; NULL if the region is
			  absent */
	uint32_t stride;
	uint32_t max_entries;
	uint32_t key_bytes;
	uint32_t value_bytes;
	uint32_t type;
	uint32_t flags;
	uint32_t index;
	uint32_t region;	/* enum ebpf_region */
	uint64_t region_offset; /* bytes */

	/* Geometry of types that have more than elements; offsets in bytes from data. */
	uint32_t bytes;	     /* size of the map */
	uint32_t n_slots;    /* hash: buckets; queue: places; ring: blocks; a power of two */
	uint32_t head_off;   /* hash: heads of the buckets; queue, stack: head words; block and GPU
				thread array: number of look-ups beyond the end */
	uint32_t pool_off;   /* bits of taken elements (map_pool.h) */
	uint32_t elem_off;   /* first element; ring: first block */
	uint32_t key_off;    /* within an element */
	uint32_t value_off;  /* within an element */
	uint32_t copy_bytes; /* epoch array: size of one copy; thread, SM and warp array: of one
				instance; else 0 */
	uint32_t inner_1;    /* as in the definition */
	uint32_t lock_1;
	const struct ebpf_map_type *ops; /* operations of its type; set by ebpf_maps_layout */
	uint32_t touched; /* epoch array in gbpfd: 1 + number of publications since its last write;
			     0: never written */
	struct ebpf_seed seed; /* hash: from the seed in the map's memory; private */
};

#define EBPF_MAX_RING_BYTES (16u << 20)
#define EBPF_MAX_RECORD_BYTES 65536u /* and at most half of the ring */
#define EBPF_MAX_STACK_ENTRIES 65536u
#define EBPF_HIST_BUCKETS 64u
#define EBPF_THREAD_SLOTS 64u
#define EBPF_SM_SLOTS 256u  /* multiprocessors with a number that is equal modulo it share one */
#define EBPF_WARP_SLOTS 64u /* of a multiprocessor */
#define EBPF_SCRATCH_BYTES 1024u    /* of a WARP_SCRATCH, for each warp of a block */
#define EBPF_MAX_LPM_KEY_BYTES 260u /* with the prefix length */
#define EBPF_EPOCH_COPIES 4u

/* The epoch used by the policy that runs on this thread; set by ebpf_policy_run() for policies with
 * epoch arrays. 0: none. */
struct ebpf_latch {
	uint64_t epoch;	   /* 1 + epoch number */
	uint32_t outlived; /* the last run took longer than three publications: it may have read
			      mixed data */
};
extern TLS_FAST struct ebpf_latch ebpf_latch;

/* Checks a definition: known type, sizes and flags in range and consistent. Returns 0, -EINVAL or
 * -E2BIG. */
int ebpf_map_check(const struct ebpf_map_def *def);

/* Fills maps[0..n) except ->data, and the size of each region in bytes (multiple of 4096, 0 if
 * unused). Deterministic: every process computes the same. Returns 0, -EINVAL or -E2BIG. */
int ebpf_maps_layout(const struct ebpf_map_def *defs, unsigned n, struct ebpf_map *maps,
		     size_t ret_region_bytes[EBPF_REGIONS]);

/* Returns the bytes at the beginning of the TENANT region that the maps with GBPF_F_DEVICE and
 * without GBPF_F_HOST have, a multiple of 4096. No other map is among them. */
size_t ebpf_maps_gpu_bytes(const struct ebpf_map *maps, unsigned n);

/* Returns the offset in the TENANT region, whose size is given, behind which the maps with
 * GBPF_F_HOST lie: a multiple of 4096, and the size if there are none. */
size_t ebpf_maps_host_at(const struct ebpf_map *maps, unsigned n, size_t region_bytes);

/* Returns the bytes that the WARP_SCRATCH maps take for each warp of a block, a multiple of 16;
 * stores the offset of each in them, 0 for other maps. */
uint32_t ebpf_maps_scratch(const struct ebpf_map *maps, unsigned n, uint32_t *ret_at);

/* Sets ->data of all maps of a region to base + region_offset, and takes copies of the seeds of its
 * hash tables; base NULL clears them. */
void ebpf_maps_bind(struct ebpf_map *maps, unsigned n, enum ebpf_region region, void *base);

/* Reads an index key once. The key may be in memory that another process changes at any time (a
 * tenant's map), so the compiler must not read it again between check and use. */
static inline uint32_t ebpf_map_index(const void *key)
{
	uint32_t index;

	memcpy(&index, key, sizeof(index));
	__asm__ volatile("" : "+r"(index));
	return index;
}

/* Sets *out to m in another mapping of its region (a tenant's, in gbpfd), with the seed that is
 * there. */
void ebpf_map_at(struct ebpf_map *out, const struct ebpf_map *m, void *region_base);

/* Stores random seeds for the hash tables of a region in its mapping. Requires that they are empty
 * and that no other process has the memory yet; maps bound to it before must be bound again.
 * Without this call the seeds are 0, which makes simulations and tests reproducible. Returns 0 or
 * the -errno of getrandom(). */
int ebpf_maps_seed(const struct ebpf_map *maps, unsigned n, enum ebpf_region region, void *base);

/* The operations behind the helpers, also for tools. None waits, allocates or enters the kernel;
 * each is safe on memory that other processes write, even at random. An operation that the type
 * does not offer returns -EINVAL (lookup: NULL).
 *
 * lookup: returns a pointer to the value or NULL. The pointer stays within the map while the map is
 * mapped, also after the element is deleted (it may then show the value of another key).
 * ARRAY_OF_MAPS: returns the struct ebpf_map; map must be an element of its array of maps. Epoch
 * array: uses the copy that this thread has latched, else the published one.
 *
 * update: returns 0, -EINVAL, -ENOENT (index, or EXIST and absent), -EEXIST, -EPERM (constant, or
 * mapped read-only here), -E2BIG (full), -EBUSY (the bucket changes all the time). Values of up to
 * 8 bytes are stored atomically. Preserves the struct bpf_spin_lock in a value. */
void *ebpf_map_lookup(const struct ebpf_map *map, const void *key);
int ebpf_map_update(const struct ebpf_map *map, const void *key, const void *value, uint64_t flags);
/* Deletes an element. Returns 0, -ENOENT, -EPERM or -EBUSY. */
int ebpf_map_delete(const struct ebpf_map *map, const void *key);
/* Appends a value. flags: 0, or BPF_EXIST (2; only for queues) to drop the oldest value of a full
 * queue. Returns 0, -E2BIG or -EBUSY. */
int ebpf_map_push(const struct ebpf_map *map, const void *value, uint64_t flags);
/* Removes the next value and copies it out. Returns 0, -ENOENT, -EPERM or -EBUSY. */
int ebpf_map_pop(const struct ebpf_map *map, void *value);
int ebpf_map_peek(const struct ebpf_map *map, void *value);
/* Counts value in a row of a HISTOGRAM. Returns 0, -ENOENT or -EPERM. */
int ebpf_map_hist_add(const struct ebpf_map *map, uint32_t row, uint64_t value);

/* Walk over a map of any type, for tools and bpf_for_each_map_elem: slots 0..ebpf_map_slots() - 1.
 * Each returns 1 (key and value are copied out; either may be NULL), 0 (empty) or -EIO
 * (inconsistent memory). If the map changes during the walk, an element may appear twice or not at
 * all. Values of a THREAD_ARRAY are summed over its threads. Queues and stacks begin with the next
 * element to pop; a slot of a stack costs one bounded walk. */
uint32_t ebpf_map_slots(const struct ebpf_map *map);
int ebpf_map_slot(const struct ebpf_map *map, uint32_t slot, void *key, void *value);
/* Copies a value as tools show it. Returns 0, -ENOENT or -EINVAL. */
int ebpf_map_read(const struct ebpf_map *map, const void *key, void *value);
/* Returns the number of elements (of an array: max_entries). */
uint32_t ebpf_map_count(const struct ebpf_map *map);
/* Sets pointers to key and value of element i < max_entries of a HASH or LRU_HASH whose data is
 * set. Returns 1, or 0 if it is absent. */
int ebpf_map_element(const struct ebpf_map *map, uint32_t i, void **ret_key, void **ret_value);
/* Returns the number of copies of a map with the trait PER_THREAD; copy k begins at data + k *
 * copy_bytes. */
static inline uint32_t ebpf_map_copies(const struct ebpf_map *m)
{
	return m->bytes / m->copy_bytes;
}

/* Returns the sum over all copies of u64 number `word` of element index of a map with the trait
 * PER_THREAD. Requires both in range. */
uint64_t ebpf_thread_sum(const struct ebpf_map *m, uint32_t index, uint32_t word);
/* Removes every element; sets arrays to 0. Returns 0, -EPERM or -EINVAL (nothing to clear). */
int ebpf_map_clear(const struct ebpf_map *map);
/* Adds the contents of from to to, which has the same definition and is not used by other threads
 * yet. Does not copy records of a ring and members of an array of maps. Returns 0, -EINVAL
 * (different definitions) or -E2BIG. */
int ebpf_map_copy(const struct ebpf_map *to, const struct ebpf_map *from);

/* Publishes epoch arrays (only gbpfd, one thread): everything that its programs have written since
 * the last call becomes the next epoch, for all maps at once. Cheap if nothing was written. Returns
 * the epoch. */
uint64_t ebpf_maps_publish(struct ebpf_map *maps, unsigned n);
/* Returns the word with the published epoch, or NULL if no map has epochs or none is bound. */
uint64_t *ebpf_maps_epoch(const struct ebpf_map *maps, unsigned n);

/* Returns the number of look-ups beyond the end of a BLOCK_ARRAY or GPU_THREAD_ARRAY, whose data is
 * set; 0 of other types. */
uint64_t ebpf_array_dropped(const struct ebpf_map *m);

#endif
