/* Maps: fixed geometry decided at load, memory in three regions that are shared differently.
 *
 * A policy version has up to three regions; map i lies in the one that its flags name, at a byte
 *offset which every process computes for itself from the definitions (ebpf_maps_layout), never from
 *the shared memory: GLOBAL	one memfd; gbpfd writes, everyone else maps it read-only (sealed
 *against further writable maps) TENANT	one memfd per tenant; that tenant and gbpfd write DAEMON
 *plain memory of gbpfd Array element i of a map begins at offset + i * stride, stride = value_size
 *rounded up to 8. */
#ifndef GBPF_BPF_RUN_MAP_H
#define GBPF_BPF_RUN_MAP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
};

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

/* The operations behind the helpers. Lookup: pointer to the value or NULL. Update: 0 or -EINVAL,
 * -ENOENT (index), -EEXIST, -EPERM (constant, or mapped read-only here). Values of up to 8 bytes
 * that are naturally aligned are stored atomically. */
void *ebpf_map_lookup(const struct ebpf_map *map, const void *key);
int ebpf_map_update(const struct ebpf_map *map, const void *key, const void *value, uint64_t flags);

#endif
