/* Function handles as the scheduler's kernels, by name. */
#ifndef GBPF_SHIM_KERNEL_H
#define GBPF_SHIM_KERNEL_H

#include "shim/thread.h"

/* A CUfunction or CUkernel, or a graph that can be launched. NULL: not told apart from others. */
static inline struct sched_kernel *kernel_of(struct shim_thread *t, const void *handle,
					     bool is_graph);

/* Remembers the name that a handle was asked for by: older drivers cannot be asked. name is copied;
 * owner is the module or library (is_kernel) that it came from. */
void kernel_note(const void *handle, const char *name, const void *owner, bool is_kernel);
/* The module or library is gone: its handles may come again with another meaning. */
void kernel_forget(const void *owner);
/* The handle came from a library (CUkernel). */
bool kernel_is_library(const void *handle);

struct sched_kernel *kernel_find(struct shim_thread *t, const void *handle, bool is_graph,
				 unsigned slot);
void kernel_refresh(struct shim_thread *t);

static inline struct sched_kernel *kernel_of(struct shim_thread *t, const void *handle,
					     bool is_graph)
{
	uintptr_t h = (uintptr_t)handle;
	unsigned slot = (h >> 4 ^ h >> 12) % THREAD_KERNELS;

	if (unlikely(t->kernel_generation != load_acquire(&shim.kernel_generation))) {
		kernel_refresh(t);
	}
	return likely(t->kernels[slot].key == handle) ? t->kernels[slot].k
						      : kernel_find(t, handle, is_graph, slot);
}

#endif
