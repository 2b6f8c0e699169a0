/* Ends of the program's modules, libraries and contexts, for all parts of the shim. */
#ifndef GBPF_SHIM_ENTRY_PARTS_H
#define GBPF_SHIM_ENTRY_PARTS_H

#include "shim/part.h"

#define SHIM_PARTS_MAX 32u

/* An end that is under way: what each part has returned for the driver's call. */
struct shim_end {
	const void *of; /* module, library or context; NULL: nothing ends */
	uint64_t before[SHIM_PARTS_MAX];
};

/* Surround the driver's call. They hold no lock meanwhile. gone: it has ended. */
struct shim_end shim_parts_unloading(const void *owner);
void shim_parts_unloaded(const struct shim_end *e, bool gone);
/* ctx NULL: none ends. */
struct shim_end shim_parts_context_ending(CUcontext ctx);
void shim_parts_context_ended(const struct shim_end *e, bool gone);
/* In a child after fork. */
void shim_parts_child(void);

#endif
