/* The dynamic linker's cache, /etc/ld.so.cache: where libraries lie by name. */
#ifndef GBPF_SHIM_LDCACHE_H
#define GBPF_SHIM_LDCACHE_H

#include <stdbool.h>
#include <stddef.h>

/* Path of the nth 64-bit library with that soname; false when there are fewer or the cache is not
 * of the known format. */
bool shim_ldcache_find(const char *soname, unsigned nth, char *path, size_t cap);

#endif
