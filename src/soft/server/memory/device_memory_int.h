/* What memory.c and reserve.c share about windows. Pages are counted from the window's begin. */
#ifndef GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_INT_H
#define GBPF_SOFT_SERVER_MEMORY_DEVICE_MEMORY_INT_H

#include "soft/server/memory/device_memory.h"

#define RIGHTS_RW 3u

uint32_t memory_after(const struct memory *m, uint64_t page); /* first allocation behind a page */
uint64_t memory_address(const struct memory *m, const struct alloc *a);
/* Room for the bytes, entered as an allocation that is not charged, mapped or valid yet; NULL. */
struct alloc *memory_place(struct memory *m, enum alloc_kind kind, uint64_t bytes, uint64_t align);
int memory_grow(struct memory *m); /* for one allocation more */
void memory_insert(struct memory *m, uint32_t at, const struct alloc *a);
void memory_remove(struct memory *m, struct alloc *a);

/* What lies at pages of the window: a descriptor's bytes, or nothing. */
int memory_put(const struct memory *m, uint64_t page, uint64_t pages, int fd, uint64_t offset);
void memory_put_nothing(const struct memory *m, uint64_t page, uint64_t pages);
/* Each of these is a mapping of the server, of which the kernel allows only so many. */
bool memory_count(struct memory *m, struct device *dev);
void memory_uncount(struct memory *m, struct device *dev);

/* reserve.c: mappings that touch fill the pages, and each of them allows it. */
bool memory_mapped_allow(const struct memory *m, uint64_t first, uint64_t last, uint8_t rights);

#endif
