/* Pages of the program that are replaced by shared ones, and back. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_PAGE_REPLACE_H
#define GBPF_SOFT_CLIENT_MEMORY_PAGE_REPLACE_H

#include "soft/client/memory/memory.h"

/* Whether all of it may be replaced: private memory of the program, writable unless read_only says
 * that reading is enough. -EFAULT: something there is not mapped; -EPERM: not such memory. */
int soft_pages_check(uint64_t begin, uint64_t bytes, bool read_only);
/* The contents go to the shared memory that fd stands for and that also lies at to; then that lies
 * at begin too. */
int soft_pages_replace(uint64_t begin, uint64_t bytes, uint64_t to, int fd);
/* What of it is still that shared memory becomes private, with its contents. */
void soft_pages_restore(uint64_t begin, uint64_t bytes, int fd);

#endif
