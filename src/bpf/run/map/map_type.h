/* Map types: one const table per GBPF_MAP_TYPE line of hooks.def. The files of this folder define
 * the tables. The loader and gbpfd query traits instead of comparing types. */
#ifndef GBPF_BPF_RUN_MAP_MAP_TYPE_H
#define GBPF_BPF_RUN_MAP_MAP_TYPE_H

#include "bpf/run/map/map.h"

#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#include "gbpf/hooks.def"

enum ebpf_map_trait {
	EBPF_MAP_INDEXED = 1,	 /* keys are u32 indices, and every element is always present */
	EBPF_MAP_KEYLESS = 2,	 /* values are pushed and popped */
	EBPF_MAP_RECORDS = 4,	 /* a stream of records to gbpfd: no elements */
	EBPF_MAP_HASHED = 8,	 /* the key determines the position of an element */
	EBPF_MAP_PREFIX = 16,	 /* keys are prefixes: a u32 length in bits, then the bytes */
	EBPF_MAP_IN_PLACE = 32,	 /* values may hold a lock, and bpf_for_each_map_elem visits them */
	EBPF_MAP_EPOCHS = 64,	 /* may be published by epochs, and may be a data section */
	EBPF_MAP_MAPS = 128,	 /* values name maps of the same policy version */
	EBPF_MAP_PROGRAMS = 256, /* entries are programs of the same policy version; no memory */
	EBPF_MAP_PER_THREAD = 512, /* each thread, or place of the GPU, writes its own copy; readers
				      sum them */
	EBPF_MAP_COUNTERS = 1024,  /* rows of 64 u64 counters, one for each power of two */
	EBPF_MAP_ON_DEVICE = 2048, /* may lie in memory of the GPU (GBPF_F_DEVICE) */
	EBPF_MAP_BUCKETS = 4096,   /* a hash table that does (map_bucket.h) */
	EBPF_MAP_DEFERS = 8192,	   /* sums may be deferred (GBPF_F_DEFER) */
	EBPF_MAP_IN_BLOCK = 16384, /* in shared memory of blocks: no other memory, and no reader */
};

/* The operations of a map type. Any thread, also in gbpfd, calls them without locks; none blocks,
 * allocates (except copy) or enters the kernel. Processes that map the memory may change it at
 * random: an operation bounds every loop and checks every index that it reads. Members are optional
 * unless marked mandatory; if one is NULL, the caller returns -EINVAL (lookup: NULL). There is no
 * init: a region begins as zeros, which is a valid empty map of every type. */
struct ebpf_map_type {
	/* Mandatory. EBPF_MAP_*. */
	uint32_t traits;
	/* Mandatory. Largest max_entries. */
	uint32_t max_entries;
	/* Mandatory. Definition that the type accepts, for a refusal's hint. */
	const char *hint;
	/* Mandatory. Returns 1 if sizes and flags of a definition suit the type, else 0. The caller
	 * checks the rules common to all types. */
	int (*check)(const struct ebpf_map_def *def);
	/* Mandatory. Sets the geometry of m (stride, offsets, n_slots), whose definition has passed
	 * check; returns the size of its memory in bytes. Deterministic. m->data is not set yet. */
	uint64_t (*layout)(struct ebpf_map *m);
	/* As ebpf_map_lookup, _update, _delete and _push. m->data may be NULL. */
	void *(*lookup)(const struct ebpf_map *m, const void *key);
	int (*update)(const struct ebpf_map *m, const void *key, const void *value, uint64_t flags);
	int (*delete)(const struct ebpf_map *m, const void *key);
	int (*push)(const struct ebpf_map *m, const void *value, uint64_t flags);
	/* As ebpf_map_pop if remove, else ebpf_map_peek. */
	int (*take)(const struct ebpf_map *m, void *value, int remove);
	/* As ebpf_map_slot; slot is in range and m->data is set. NULL: the map has no slots. */
	int (*slot)(const struct ebpf_map *m, uint32_t slot, void *key, void *value);
	/* Number of elements; m->data is set. NULL: one for each slot. */
	uint32_t (*count)(const struct ebpf_map *m);
	/* As ebpf_map_clear; the map is writable. */
	int (*clear)(const struct ebpf_map *m);
	/* As ebpf_map_copy; the maps have the same definition and memory. May allocate; gbpfd only.
	 * NULL: contents belong to the policy version and are not copied. */
	int (*copy)(const struct ebpf_map *to, const struct ebpf_map *from);
};

/* Returns the table of a type id (GBPF_MAP_*), or NULL if there is no such type. */
const struct ebpf_map_type *ebpf_map_type_of(uint32_t id);
/* Returns the name, without GBPF_MAP_, of type number i in the order of hooks.def; NULL after the
 * last. */
const char *ebpf_map_type_name_at(uint32_t i);
/* Returns the name of a type id without GBPF_MAP_, or NULL. */
const char *ebpf_map_type_name(uint32_t id);
/* Returns whether maps of the type have the trait; 0 for unknown types. */
int ebpf_map_type_has(uint32_t id, enum ebpf_map_trait trait);

#endif
