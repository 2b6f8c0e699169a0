/* Allocations by their page in a window. */
#ifndef GBPF_TESTS_SOFT_WINDOW_RIG_H
#define GBPF_TESTS_SOFT_WINDOW_RIG_H

#include "memory_rig.h"

/* Allocates pinned memory of that descriptor. Returns its page; 0: refused. */
static inline uint64_t pinned(uint64_t bytes, int fd)
{
	uint64_t a = softd_memory_alloc(m, machine, 0, bytes, SOFT_MEMORY_PINNED, fd);

	return a ? (a - m->space.base) / PAGE : 0;
}

static inline int free_page(uint64_t page)
{
	return softd_memory_free(m, machine, address_of(page));
}

#endif
