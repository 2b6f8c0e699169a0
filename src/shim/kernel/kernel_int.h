/* The room's own interface. */
#ifndef GBPF_SHIM_KERNEL_KERNEL_INT_H
#define GBPF_SHIM_KERNEL_KERNEL_INT_H

#include "base/lock.h"
#include "base/strmap.h"
#include "shim/kernel/kernel_handle.h"

/* Held over calls of the driver that ask for names. clone.c takes it under its own mutex. */
extern struct lock shim_kernels_mutex;
/* Handle in hexadecimal > struct shim_kernel. */
extern struct strmap shim_kernels GUARDED_BY(shim_kernels_mutex);

/* What is known of a kernel's memory may be of another one. */
void shim_kernel_drop_pointers(struct shim_kernel *k) REQUIRES(shim_kernels_mutex);
/* The handle names another kernel than it did, or the program has launched it before it asked for
 * it. The clone stays allocated, since a launch of another thread, or a deferred one, may use it;
 * later launches do not take it. */
void shim_kernel_means_another(struct shim_kernel *k) REQUIRES(shim_kernels_mutex);
/* Returns whether a kernel of that name, of a load of an owner, is the one that the handle names,
 * as far as it is known. */
bool shim_kernel_names_the_same(const struct shim_kernel *k, const char *name, const void *owner,
				uint64_t load) REQUIRES(shim_kernels_mutex);

#endif
