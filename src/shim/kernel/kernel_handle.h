/* Function handles as the scheduler's kernels, which it knows by name. */
#ifndef GBPF_SHIM_KERNEL_KERNEL_HANDLE_H
#define GBPF_SHIM_KERNEL_KERNEL_HANDLE_H

#include <stdint.h>
#include <stdio.h>

#include "shim/object/thread_cache.h"
#include "shim/part.h"

struct shim_clone;

extern const struct shim_part shim_kernel_part;

struct shim_kernel {
	struct sched_kernel *k;	  /* NULL: it has no name, or there is no memory */
	struct shim_clone *clone; /* NULL: it cannot be stopped */
};
/* Returns what is known of a CUfunction, CUkernel or executable graph that is launched; looks it up
 * at the thread's first launch. */
static inline struct shim_kernel shim_kernel_of(struct shim_thread *t, const void *handle,
						bool is_graph);

enum shim_kernel_kind {
	SHIM_KERNEL_OF_MODULE,	/* a CUfunction; its owner is a module */
	SHIM_KERNEL_OF_LIBRARY, /* a CUkernel; its owner is a library */
	SHIM_KERNEL_FUNCTION,	/* a CUfunction of a library's kernel; its owner is the library */
};
/* Records the name by which a handle was requested (older drivers do not report it) and the
 * handle's owner. name is copied. */
void shim_kernel_note(const void *handle, const char *name, const void *owner,
		      enum shim_kernel_kind kind);
struct shim_kernel_origin {
	const void *owner;
	enum shim_kernel_kind kind;
	uint32_t probes; /* tools that had been attached when the program got it */
	char *name;	 /* caller frees */
};
/* Returns false if the handle was not obtained through the shim. */
bool shim_kernel_origin(const void *handle, struct shim_kernel_origin *ret);
/* A handle that was launched. */
struct shim_kernel_launched {
	const void *owner;
	struct sched_kernel *kernel;
	char *name; /* owned */
};
/* Returns the handles that were launched and of whose kernels no form is known (enum proto_form),
 * in the order of their owners; NULL: none, or no memory. Caller frees by
 * shim_kernel_launched_free(). */
struct shim_kernel_launched *shim_kernel_launched(size_t *ret_n);
void shim_kernel_launched_free(struct shim_kernel_launched *l, size_t n); /* accepts NULL */
/* Returns the scheduler's kernel of a noted handle, as if it was launched, or of a graph that was
 * launched; NULL: none. Kernels of the scheduler are never freed. */
struct sched_kernel *shim_kernel_counted(const void *handle);
struct sched_kernel *shim_kernel_counted_graph(const void *exec);
/* Returns whether the kernel that the driver names by one of these, or both, communicates with
 * kernels on other GPUs. */
bool shim_kernel_communicates(CUkernel kernel, CUfunction function);
/* A graph was made: whether one of its kernels communicates with kernels on other GPUs. An earlier
 * graph may have had its handle. */
void shim_kernel_set_graph(const void *exec, bool communicates);
/* Returns the handle by which the program got a kernel that the driver names by one of these or
 * both, NULL if it does not: that handle, or, of a function of a library's kernel, the kernel.
 * NULL: unknown. */
const void *shim_kernel_noted(CUkernel kernel, CUfunction function);
/* Returns true if the handle came from a library (CUkernel). */
bool shim_kernel_is_library(const void *handle);
/* Asks the driver for an attribute of f on the current device; library: f is a CUkernel. */
CUresult shim_kernel_attribute(int *ret, CUfunction_attribute what, CUfunction f, bool library);

extern struct shim_clone shim_clone_none; /* in the threads' caches */
struct shim_kernel shim_kernel_look_up(struct shim_thread *t, uintptr_t key);

static inline struct shim_kernel shim_kernel_of(struct shim_thread *t, const void *handle,
						bool is_graph)
{
	/* Handles are aligned, so bit 0 distinguishes a graph from a function at the same address.
	 */
	uintptr_t key = (uintptr_t)handle | is_graph;
	const struct shim_thread_kernel *e = shim_thread_find(t, key);

	if (unlikely(!e || !e->clone)) {
		return shim_kernel_look_up(t, key);
	}
	return (struct shim_kernel){ e->k, e->clone == &shim_clone_none ? NULL : e->clone };
}

#endif
