/* Shared-memory pages: memfds sealed against growing and shrinking. */
#ifndef GBPF_BASE_SHM_H
#define GBPF_BASE_SHM_H

#include <stddef.h>
#include <sys/types.h>

enum shm_exec { SHM_NOEXEC = 0, SHM_EXEC = 1 };

/* Creates a zeroed memfd of exactly this size, sealed against growing and shrinking. Returns the
 * descriptor (close-on-exec) or -errno. SHM_EXEC requests MFD_EXEC on kernels that know it. */
int shm_create(const char *name, size_t bytes, enum shm_exec exec);

/* Prevents new writable mappings and write(); existing mappings stay writable, so writers must map
 * first. */
int shm_seal_future_write(int fd);

/* Checks that a received descriptor is a memfd of exactly this size, sealed against growing and
 * shrinking, so that a mapping of it cannot fault, and without memory beyond its end, so that
 * closing it takes no time. 0 or -EBADF / -EINVAL. */
int shm_check(int fd, size_t bytes);
/* Returns the size of a received sealed memfd, at most max; or -EBADF, -EINVAL, -EFBIG. */
long shm_checked_size(int fd, size_t max);

/* Maps shared, PROT_READ [| PROT_WRITE]. NULL on failure (errno set). */
void *shm_map(int fd, size_t bytes, int writable);
/* Maps shared, for reading and writing, from an offset on. Children of fork do not inherit the
 * mapping. NULL on failure. */
void *shm_map_own(int fd, size_t bytes, off_t offset);
void shm_unmap(void *p, size_t bytes);

#endif
