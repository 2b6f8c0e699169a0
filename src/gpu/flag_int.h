/* Making flag pages; for the files of this room. */
#ifndef GBPF_GPU_FLAG_INT_H
#define GBPF_GPU_FLAG_INT_H

#include "cuabi/private.h"
#include "gpu/flag.h"

/* Returns the soft GPU's private table; NULL: another driver, or a table without flag pages. */
const struct cuabi_soft_table *gpu_soft_table(const struct cuabi_table *real);

/* An allocation of device memory that other processes can map. */
struct gpu_exported {
	CUmemGenericAllocationHandle memory;
	int fd;		 /* owned by the caller; -1: refused, see why */
	const char *why; /* static text; NULL: no failure */
	int error;	 /* errno or the driver's status; belongs to why */
};
/* Allocates device memory in the current context and makes a descriptor of its first page. Returns
 * the status of cuMemCreate. */
CUresult gpu_export_new(struct gpu_device *d, size_t bytes, struct gpu_exported *ret);

#endif
