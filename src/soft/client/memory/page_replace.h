/* Replaces pages of the program by shared memory, and back. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_PAGE_REPLACE_H
#define GBPF_SOFT_CLIENT_MEMORY_PAGE_REPLACE_H

#include "soft/client/memory/memory.h"

/* Checks that all pages may be replaced: private memory of the program, writable, or readable if
 * read_only. Returns -EFAULT if something is not mapped, -EPERM for other kinds of memory. */
int soft_pages_check(uint64_t begin, uint64_t bytes, bool read_only);
/* Copies the contents to the shared memory of fd, which is already mapped at `to`, and maps it at
 * begin. */
int soft_pages_replace(uint64_t begin, uint64_t bytes, uint64_t to, int fd);
/* Makes pages that still are that shared memory private again, with their contents. */
void soft_pages_restore(uint64_t begin, uint64_t bytes, int fd);

#endif
