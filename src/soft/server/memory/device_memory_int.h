/* Interface between device_memory.c and reserve.c. Pages are counted from the window's start. */
#ifndef GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_INT_H
#define GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_INT_H

#include "soft/server/memory/device_memory.h"
#include "soft/server/machine_lock.h"

#define SOFTD_RIGHTS_RW 3u

/* Returns the index of the first allocation that begins after page. */
uint32_t softd_memory_find_after(const struct softd_memory *m, uint64_t page) REQUIRES(softd_lock);
uint64_t softd_memory_address(const struct softd_memory *m, const struct softd_alloc *a)
	REQUIRES(softd_lock);
/* Inserts an allocation that is not charged, mapped or valid yet. Returns NULL if there is no room.
 */
struct softd_alloc *softd_memory_place(struct softd_memory *m, enum softd_alloc_kind kind,
				       uint32_t owner, uint64_t bytes, uint64_t align)
	REQUIRES(softd_lock);
/* Makes room for one more entry in allocs. */
int softd_memory_grow(struct softd_memory *m) REQUIRES(softd_lock);
void softd_memory_insert(struct softd_memory *m, uint32_t at, const struct softd_alloc *a)
	REQUIRES(softd_lock);
void softd_memory_remove(struct softd_memory *m, struct softd_alloc *a) REQUIRES(softd_lock);

/* Maps pages of the window to a descriptor's bytes, or to nothing. */
int softd_memory_map_pages(const struct softd_memory *m, uint64_t page, uint64_t pages, int fd,
			   uint64_t offset);
void softd_memory_unmap_pages(const struct softd_memory *m, uint64_t page, uint64_t pages);
/* Counts a mapping of the server; the kernel limits their number (vm.max_map_count). Returns false
 * at the limit. */
bool softd_memory_count_mapping(struct softd_memory *m, struct softd_machine *machine)
	REQUIRES(softd_lock);
void softd_memory_uncount_mapping(struct softd_memory *m, struct softd_machine *machine)
	REQUIRES(softd_lock);

/* reserve.c: returns true if adjacent mappings cover the pages and each of them allows the rights.
 */
bool softd_memory_mappings_allow(const struct softd_memory *m, uint64_t first, uint64_t last,
				 uint8_t rights) REQUIRES(softd_lock);

#endif
