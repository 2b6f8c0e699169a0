/* Shared-memory pages: memfds sealed against growing and shrinking, mapped by private sizes. */
#ifndef GBPF_BASE_SHM_H
#define GBPF_BASE_SHM_H

#include <stddef.h>

enum shm_exec { SHM_NOEXEC = 0, SHM_EXEC = 1 };

/* Makes a zeroed memfd of exactly that size, sealed against growing and shrinking. Returns the
 * descriptor (close-on-exec) or -errno. SHM_EXEC asks for MFD_EXEC where the kernel knows it. */
int shm_create(const char *name, size_t bytes, enum shm_exec exec);

/* No new writable mapping and no write() from now on; mappings that exist stay writable. Whoever
 * must write maps first. */
int shm_seal_future_write(int fd);

/* Checks that a received descriptor is a memfd of exactly that size, sealed against growing and
 * shrinking, so that a mapping of it can never fault, with no memory beyond it, so that closing it
 * takes no time. 0 or -EBADF / -EINVAL. */
int shm_check(int fd, size_t bytes);
/* The sealed size of a received memfd, at most max; or -EBADF, -EINVAL, -EFBIG. */
long shm_checked_size(int fd, size_t max);

/* Shared mapping, PROT_READ [| PROT_WRITE]. NULL on failure (errno set). */
void *shm_map(int fd, size_t bytes, int writable);
void shm_unmap(void *p, size_t bytes);

#endif
