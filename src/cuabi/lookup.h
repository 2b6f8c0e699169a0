/* Lookup of driver functions by name: indexes of exact names, and the variants that
 * cuGetProcAddress must return. */
#ifndef GBPF_CUABI_LOOKUP_H
#define GBPF_CUABI_LOOKUP_H

#include <stdint.h>

#include "cuabi/names.h"
#include "cuabi/table.h"
#include "cuabi/types.h"

/* Returns the index of an exact exported name, or -1. */
int cuabi_index(const char *name);

/* Returns the index of the variant that a program built for that CUDA version means; -1 if there is
 * no such function, -2 if it is newer than the version. name: as in source code ("cuMemAlloc"), or
 * with its suffix; flags: CUdriverProcAddress_flags. Functions without variants match every
 * version. */
int cuabi_resolve(const char *name, int version, uint64_t flags);

/* Fills the table from an open library (dlopen). Functions that it lacks return
 * CUDA_ERROR_NOT_FOUND, so every entry may be called. */
void cuabi_table_load(struct cuabi_table *t, void *library);

/* Return the name ("CUDA_ERROR_INVALID_VALUE") and the description of a result; NULL if it is
 * unknown. */
const char *cuabi_result_name(CUresult r);
const char *cuabi_result_text(CUresult r);

#endif
