/* Libraries with variables of 1 MiB or more, and the contexts that these are in. The driver gives
 * each context its own, when the library is first used there: at a launch, say, where nothing can
 * be refused any more (H200). So such a library is charged for each context, and placed in it at
 * once: when it is loaded, and when a context is made. Smaller ones are measured. */
#ifndef GBPF_SHIM_MEM_LIBRARIES_H
#define GBPF_SHIM_MEM_LIBRARIES_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

struct shim_mem_library;

/* Returns a library that is to be charged, or NULL: it has no such variables, or there is no memory
 * for the record. target: CU_JIT_TARGET, or 0. */
struct shim_mem_library *shim_mem_library_of_data(const void *image, unsigned target);
struct shim_mem_library *shim_mem_library_of_file(const char *path, unsigned target);

/* Charges the library for each context. Returns false if that exceeds a limit: the driver is not
 * asked then. A mutex is held until _loaded(). */
bool shim_mem_library_begin(struct shim_mem_library *l);
/* The driver's result for the library is r: places it in each context. Returns the result for the
 * program; unless it is CUDA_SUCCESS the library is unloaded and nothing is charged. Takes l. */
CUresult shim_mem_library_loaded(struct shim_mem_library *l, CUresult r, CUlibrary handle);
/* Unloads a library that is charged, stores the driver's result and returns true; false: it is not
 * charged. */
bool shim_mem_library_unload(CUlibrary handle, CUresult *ret);

/* Around the making of a context. _reserve(): charges the libraries that are loaded, before the
 * driver is called. Returns false if they exceed the limit. _enter(): r is the driver's result for
 * the context, of which it places them. Returns the result for the program; if only that is an
 * error, the caller destroys the context. */
bool shim_mem_libraries_reserve(CUdevice device, const char *call, uint64_t *ret_reserved);
CUresult shim_mem_libraries_enter(CUcontext ctx, CUdevice device, bool is_primary,
				  uint64_t reserved, CUresult r);
/* A context is about to end: nothing is placed in it from now on. Then: it has not ended; or it
 * has, and what was placed in it until that epoch is gone. */
void shim_mem_libraries_context_ending(CUcontext ctx);
void shim_mem_libraries_context_stays(CUcontext ctx);
void shim_mem_libraries_context_ended(CUcontext ctx, uint64_t epoch);

#endif
