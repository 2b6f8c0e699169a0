/* Regions: what a process has been charged for, by a 64-bit key (an address, or a handle). A hash
 * table with open addressing: finding, adding and removing cost the same with ten entries and with
 * a hundred thousand. Not thread-safe: the caller serializes. */
#ifndef GBPF_MEM_REGION_H
#define GBPF_MEM_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mem_region {
	uint64_t key;
	uint64_t bytes; /* charged; meaning is the caller's */
	uint64_t owner; /* the caller's: a context, an object */
	uint64_t epoch; /* the caller's: when it was added */
	uint32_t row, count;
};

struct mem_regions {
	struct mem_region *slot; /* owned; a power of two of them; count 0: free */
	size_t size, n;
};

/* Adds an entry whose key must not be there; r->count must not be 0. Returns 0 or -ENOMEM. */
int mem_regions_add(struct mem_regions *t, const struct mem_region *r);
/* Returns the entry, which is valid until the next change of the table, or NULL. */
struct mem_region *mem_regions_find(const struct mem_regions *t, uint64_t key);
/* Removes the entry of a key and stores it. Returns false if there is none. */
bool mem_regions_take(struct mem_regions *t, uint64_t key, struct mem_region *ret);
/* Removes an entry of that owner whose epoch is at most the given one, and stores it. Returns false
 * if there is none left. *cursor is 0 for the first call; all calls together look at each slot
 * once.
 */
bool mem_regions_take_owned(struct mem_regions *t, uint64_t owner, uint64_t epoch, size_t *cursor,
			    struct mem_region *ret);
/* Removes an entry whose key is in that range, and stores it; otherwise as above. */
bool mem_regions_take_between(struct mem_regions *t, uint64_t first, uint64_t last, size_t *cursor,
			      struct mem_region *ret);
void mem_regions_finish(struct mem_regions *t);

#endif
