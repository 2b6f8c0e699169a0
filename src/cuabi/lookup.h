/* From names to indexes, and from what cuGetProcAddress is asked to the variant that it must give.
 */
#ifndef GBPF_CUABI_LOOKUP_H
#define GBPF_CUABI_LOOKUP_H

#include <stdint.h>

#include "cuabi/names.h"
#include "cuabi/table.h"
#include "cuabi/types.h"

/* Index of an exact exported name; -1 when there is none. */
int cuabi_index(const char *name);

/* The variant of a function that a program built for that CUDA version means: name as written in
 * source ("cuMemAlloc", also with a suffix already in it), flags of CUdriverProcAddress_flags.
 * Returns the index; -1: no such name, -2: the function is newer than the version asked. Names
 * without versions answer for every version. */
int cuabi_resolve(const char *name, int version, uint64_t flags);

/* Fills the table from a library that was opened (dlopen); what it lacks answers
 * CUDA_ERROR_NOT_FOUND, so every entry may be called. */
void cuabi_table_load(struct cuabi_table *t, void *library);

/* "CUDA_ERROR_INVALID_VALUE" and a description; NULL for unknown values. */
const char *cuabi_result_name(CUresult r);
const char *cuabi_result_text(CUresult r);

#endif
