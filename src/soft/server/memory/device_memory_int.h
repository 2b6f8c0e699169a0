/* What memory.c and reserve.c share about windows. Pages are counted from the window's begin. */
#ifndef GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_INT_H
#define GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_INT_H

#include "soft/server/memory/device_memory.h"

#define RIGHTS_RW 3u

uint32_t softd_memory_find_after(const struct softd_memory *m,
				 uint64_t page); /* first allocation behind a page */
uint64_t softd_memory_address(const struct softd_memory *m, const struct softd_alloc *a);
/* Room for the bytes, entered as an allocation that is not charged, mapped or valid yet; NULL. */
struct softd_alloc *softd_memory_place(struct softd_memory *m, enum softd_alloc_kind kind,
				       uint64_t bytes, uint64_t align);
int softd_memory_grow(struct softd_memory *m); /* for one allocation more */
void softd_memory_insert(struct softd_memory *m, uint32_t at, const struct softd_alloc *a);
void softd_memory_remove(struct softd_memory *m, struct softd_alloc *a);

/* What lies at pages of the window: a descriptor's bytes, or nothing. */
int softd_memory_map_pages(const struct softd_memory *m, uint64_t page, uint64_t pages, int fd,
			   uint64_t offset);
void softd_memory_unmap_pages(const struct softd_memory *m, uint64_t page, uint64_t pages);
/* Each of these is a mapping of the server, of which the kernel allows only so many. */
bool softd_memory_count_mapping(struct softd_memory *m, struct softd_machine *machine);
void softd_memory_uncount_mapping(struct softd_memory *m, struct softd_machine *machine);

/* reserve.c: mappings that touch fill the pages, and each of them allows it. */
bool softd_memory_mappings_allow(const struct softd_memory *m, uint64_t first, uint64_t last,
				 uint8_t rights);

#endif
