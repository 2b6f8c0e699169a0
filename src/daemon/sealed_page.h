/* Shared pages on gbpfd's side: a descriptor to pass on, and a mapping. */
#ifndef GBPF_DAEMON_SEALED_PAGE_H
#define GBPF_DAEMON_SEALED_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/pages.h"

struct daemon_page {
	int fd;	   /* owned; -1: none, or closed after it was passed on */
	void *map; /* owned; NULL: none */
	size_t bytes;
	bool writable; /* mapped writable by gbpfd */
};

#define DAEMON_PAGE_NONE ((struct daemon_page){ .fd = -1 })

/* Creates a zeroed memfd, sealed in size, and maps it writable. 0 or -errno. */
int daemon_page_create(struct daemon_page *p, const char *name, size_t bytes);
/* Takes over fd if it is a memfd of that size, sealed in size; maps it writable if its seals allow
 * it. 0, -EBADF, -EINVAL, -errno; on failure fd stays the caller's. */
int daemon_page_adopt(struct daemon_page *p, int fd, size_t bytes);
/* Prevents further writable mappings; existing ones stay. 0, or -EPERM if another process that
 * holds the memfd has set F_SEAL_SEAL. */
int daemon_page_seal(const struct daemon_page *p);
void daemon_page_close_fd(struct daemon_page *p);
void daemon_page_destroy(struct daemon_page *p);

/* Closes every request of an exited tenant and wakes its waiters. Must not be called for a running
 * one, whose own count would go below zero. If gbpfd may only read the page, it just wakes the
 * waiters. */
void daemon_board_clear(const struct daemon_page *board);

#endif
