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

struct sched_kernel *kernel_find(struct shim_thread *t, uintptr_t key, unsigned slot);
void kernel_refresh(struct shim_thread *t);

static inline struct sched_kernel *kernel_of(struct shim_thread *t, const void *handle,
					     bool is_graph)
{
	/* Handles are aligned: a graph and a function at the same address are told apart. */
	uintptr_t key = (uintptr_t)handle | is_graph;
	unsigned slot = (unsigned)(key * 0x9e3779b97f4a7c15u >> 52) % THREAD_KERNELS;

	if (unlikely(t->kernel_generation != load_acquire(&shim.kernel_generation))) {
		kernel_refresh(t);
	}
	if (likely(t->kernels[slot].key == key)) {
		return t->kernels[slot].k;
	}
	slot ^= 1;
	return t->kernels[slot].key == key ? t->kernels[slot].k : kernel_find(t, key, slot);
}

#endif
