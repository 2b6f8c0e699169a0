/* The shadow of a window: one state byte for each byte, reserved with the window and committed on
 * first touch, so checking doubles the memory that programs use. */
#include "soft/server/memory/shadow.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define KNOWN (EXEC_SHADOW_ALLOCATED | EXEC_SHADOW_INITIALIZED)

int softd_shadow_init(struct exec_space *s)
{
	void *p;

	if (!exec_checking()) {
		return 0;
	}
	p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		return -ENOMEM;
	}
	madvise(p, s->bytes, MADV_DONTDUMP);
	s->shadow = p;
	return 0;
}

void softd_shadow_finish(struct exec_space *s)
{
	if (s->shadow) {
		munmap(s->shadow, s->bytes);
	}
	s->shadow = NULL;
}

void softd_shadow_set_allocated(struct exec_space *s, uint64_t offset, uint64_t bytes)
{
	if (s->shadow) {
		memset(s->host + offset, EXEC_POISON, bytes);
		memset(s->shadow + offset, EXEC_SHADOW_ALLOCATED, bytes);
	}
}

void softd_shadow_set_initialized(struct exec_space *s, uint64_t offset, uint64_t bytes)
{
	if (s->shadow) {
		memset(s->shadow + offset, KNOWN, bytes);
	}
}

void softd_shadow_set_freed(struct exec_space *s, uint64_t offset, uint64_t bytes)
{
	if (s->shadow) {
		memset(s->shadow + offset, EXEC_SHADOW_FREED, bytes);
	}
}

void softd_shadow_copy(struct exec_space *to, uint64_t offset, const struct exec_space *from,
		       uint64_t from_offset, uint64_t bytes)
{
	if (!to->shadow) {
		return;
	}
	for (uint64_t i = 0; i < bytes; i++) {
		uint8_t known = from->shadow ? from->shadow[from_offset + i] : KNOWN;

		to->shadow[offset + i] |= known & EXEC_SHADOW_INITIALIZED;
	}
}
