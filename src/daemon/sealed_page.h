/* Shared pages as gbpfd holds them: a descriptor to pass on, and a mapping. */
#ifndef GBPF_DAEMON_SEALED_PAGE_H
#define GBPF_DAEMON_SEALED_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/pages.h"

struct daemon_page {
	int fd;	   /* owned; -1: none, or passed on and closed */
	void *map; /* owned; NULL: none */
	size_t bytes;
	bool writable; /* by us */
};

#define PAGE_NONE ((struct daemon_page){ .fd = -1 })

/* A zeroed memfd, sealed in size, mapped writable. 0 or -errno. */
int daemon_page_create(struct daemon_page *p, const char *name, size_t bytes);
/* Takes over fd when it is a memfd of that size, sealed in size; mapped writable where its seals
 * allow it. 0, -EBADF, -EINVAL, -errno; fd stays the caller's on failure. */
int daemon_page_adopt(struct daemon_page *p, int fd, size_t bytes);
/* After this nobody can map it writable any more (mappings stay). 0, or -EPERM when whoever holds a
 * copy has prevented it. */
int daemon_page_seal(const struct daemon_page *p);
void daemon_page_close_fd(struct daemon_page *p);
void daemon_page_destroy(struct daemon_page *p);

/* Closes every request of a tenant that is gone (never of one that lives: its own count would go
 * below zero) and wakes who waits for it. A page that we may only read is left as it is; the
 * waiters are woken all the same. */
void daemon_board_clear(const struct daemon_page *board);

#endif
