/* How a flag page comes to be; for the files of this room. */
#ifndef GBPF_GPU_FLAG_INT_H
#define GBPF_GPU_FLAG_INT_H

#include "cuabi/private.h"
#include "gpu/flag.h"

/* The soft GPU's private table, as far as it has flag pages; NULL: another driver. */
const struct cuabi_soft_table *gpu_soft_table(const struct cuabi_table *real);

/* A new allocation of device memory that other processes can map. */
struct gpu_exported {
	CUmemGenericAllocationHandle memory;
	int fd;		 /* -1: refused, for the reason in why */
	const char *why; /* static */
	int error;	 /* errno or the driver's status, for the reason */
};
/* Allocates bytes of device memory in the current context and makes a descriptor on its first page.
 * What cuMemCreate says. */
CUresult gpu_export_new(struct gpu_device *d, size_t bytes, struct gpu_exported *ret);

#endif
