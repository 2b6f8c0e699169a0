/* The library that one of gBPF's own, of the same soname, stands in front of. */
#ifndef GBPF_BASE_REAL_LIBRARY_H
#define GBPF_BASE_REAL_LIBRARY_H

#include <stddef.h>

/* Opens the library that the environment variable names; without one, searches for the soname as
 * the dynamic linker would (LD_LIBRARY_PATH, the linker's cache, the usual folders). The linker
 * itself cannot be asked by soname, which is gBPF's own library's, too. own: any address in the
 * calling library, which is never the result. Returns a handle of dlopen; NULL with the reason in
 * why, a message without a prefix. */
void *real_library_open(const char *soname, const char *variable, const void *own, char *why,
			size_t cap);

#endif
