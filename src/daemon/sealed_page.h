/* Shared pages as gbpfd holds them: a descriptor to pass on, and a mapping. */
#ifndef GBPF_DAEMON_SEALED_PAGE_H
#define GBPF_DAEMON_SEALED_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/pages.h"

struct page {
	int fd;	   /* owned; -1: none, or passed on and closed */
	void *map; /* owned; NULL: none */
	size_t bytes;
	bool writable; /* by us */
};

#define PAGE_NONE ((struct page){ .fd = -1 })

/* A zeroed memfd, sealed in size, mapped writable. 0 or -errno. */
int page_create(struct page *p, const char *name, size_t bytes);
/* Takes over fd when it is a memfd of that size, sealed in size; mapped writable where its seals
 * allow it. 0, -EBADF, -EINVAL, -errno; fd stays the caller's on failure. */
int page_adopt(struct page *p, int fd, size_t bytes);
/* After this nobody can map it writable any more (mappings stay). 0, or -EPERM when whoever holds a
 * copy has prevented it. */
int page_seal(const struct page *p);
void page_close_fd(struct page *p);
void page_destroy(struct page *p);

/* Closes every request of a tenant that is gone (never of one that lives: its own count would go
 * below zero) and wakes who waits for it. A page that we may only read is left as it is; the
 * waiters are woken all the same. */
void board_clear(const struct page *board);

#endif
