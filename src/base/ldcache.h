/* The dynamic linker's cache, /etc/ld.so.cache: paths of libraries by soname. */
#ifndef GBPF_BASE_LDCACHE_H
#define GBPF_BASE_LDCACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Writes the path of the nth 64-bit library with that soname. Returns false if there are fewer or
 * the cache does not have the known format. */
bool ldcache_find(const char *soname, unsigned nth, char *path, size_t cap);

/* The same, in the content of such a file. Its offsets may be wrong. */
bool ldcache_scan(const struct buf *cache, const char *soname, unsigned nth, char *path,
		  size_t cap);

#endif
