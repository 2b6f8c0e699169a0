/* What a program has advised about parts of one allocation of managed memory, and where it has
 * prefetched them to: what the driver would answer about them, whatever gBPF advises itself. Not
 * thread-safe: the caller serializes. */
#ifndef GBPF_MEM_ADVICE_H
#define GBPF_MEM_ADVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A location as CUDA has it (CUmemLocation); type 0: none. */
struct mem_location {
	int type, id;
};

enum mem_advice_kind {
	MEM_ADVICE_READ_MOSTLY,
	MEM_ADVICE_PREFERRED,
	MEM_ADVICE_ACCESSED_BY,
	MEM_ADVICE_PREFETCHED,
};

/* What holds for a part. */
struct mem_advice {
	bool read_mostly;
	uint64_t accessed_by; /* bit 0 the host, bit 1 + n device n */
	struct mem_location preferred, prefetched;
};

struct mem_advice_change {
	enum mem_advice_kind kind;
	bool set;		      /* READ_MOSTLY, ACCESSED_BY: or taken back */
	uint64_t by;		      /* ACCESSED_BY: the bits */
	struct mem_location location; /* PREFERRED, PREFETCHED; none takes it back */
};

#define MEM_ADVICE_PARTS_MAX 65536u

struct mem_advice_map;
/* Returns a map in which nothing is advised, or NULL: out of memory. bytes: of the allocation, not
 * 0. */
struct mem_advice_map *mem_advice_create(uint64_t bytes);
void mem_advice_destroy(struct mem_advice_map *m); /* accepts NULL */
/* Changes [begin, end), offsets in the allocation with begin < end. Returns 0, or -ENOMEM, also
 * where there would be more than MEM_ADVICE_PARTS_MAX parts: nothing has changed. */
int mem_advice_change(struct mem_advice_map *m, uint64_t begin, uint64_t end,
		      const struct mem_advice_change *c);
/* Returns what holds at an offset; *ret_end becomes the end of the part for which it does. */
struct mem_advice mem_advice_at(const struct mem_advice_map *m, uint64_t offset, uint64_t *ret_end);
/* Returns what holds in all of [begin, end): locations are none where parts differ. */
struct mem_advice mem_advice_of(const struct mem_advice_map *m, uint64_t begin, uint64_t end);

#endif
