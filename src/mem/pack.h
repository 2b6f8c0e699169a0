/* Packs: memory of MEM_PACK_BYTES each, which small allocations share. Only records: the caller has
 * the memory. An allocation gets the smallest room in which it fits, of all packs of a set, at a
 * cost that depends on the number of neither. Not thread-safe: the caller serializes. */
#ifndef GBPF_MEM_PACK_H
#define GBPF_MEM_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_PACK_BYTES (UINT64_C(2) << 20)
#define MEM_PACK_GRAIN 512u /* of addresses and sizes, bytes: as the driver packs them (H200) */
#define MEM_PACK_GRAINS ((uint32_t)(MEM_PACK_BYTES / MEM_PACK_GRAIN))
#define MEM_PACK_WORDS (MEM_PACK_GRAINS / 64)

/* A part of a pack: an allocation, or the room between two of them. */
struct mem_pack_part {
	struct mem_pack *pack;
	struct mem_pack_part *prev, *next; /* rooms of the same size */
	uint32_t first, grains;
	uint32_t bytes;	  /* of the allocation; 0: it is room */
	uint32_t awaited; /* the caller's */
	uint64_t id;	  /* the caller's */
	bool freed;	  /* the caller's */
};

struct mem_pack {
	struct mem_pack_set *set;
	uint64_t base;
	uint32_t n;			 /* allocations in it */
	uint64_t begins[MEM_PACK_WORDS]; /* grains with which a part begins, by bits */
	/* Owned: parts, at their first and their last grain; other places have no meaning. */
	struct mem_pack_part *at[MEM_PACK_GRAINS];
};

/* Packs among which an allocation may be in any. Zero: it is empty. */
struct mem_pack_set {
	size_t n;			/* packs */
	uint64_t words;			/* words of `sizes` that are not 0, by bits */
	uint64_t sizes[MEM_PACK_WORDS]; /* sizes of which there is room, less 1 grain, by bits */
	struct mem_pack_part *room[MEM_PACK_GRAINS]; /* by size in grains, less 1 */
};

/* Adds a pack at an address that is a multiple of MEM_PACK_GRAIN, with an allocation of so many
 * bytes at its begin. Returns the allocation, or NULL: out of memory. bytes: 1 to MEM_PACK_BYTES.
 */
struct mem_pack_part *mem_pack_add(struct mem_pack_set *s, uint64_t base, uint64_t bytes);
/* Removes a pack, with all that is allocated in it. */
void mem_pack_remove(struct mem_pack *p);
/* Allocates in a pack of the set. Returns NULL if none has room. bytes: as above. */
struct mem_pack_part *mem_pack_take(struct mem_pack_set *s, uint64_t bytes);
/* Frees an allocation. */
void mem_pack_give(struct mem_pack_part *part);
/* Returns the allocation whose bytes an address is in, which is in the pack, or NULL: room. */
struct mem_pack_part *mem_pack_find(const struct mem_pack *p, uint64_t address);

static inline uint64_t mem_pack_address(const struct mem_pack_part *part)
{
	return part->pack->base + (uint64_t)part->first * MEM_PACK_GRAIN;
}

#endif
