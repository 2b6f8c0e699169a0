/* Function handles as the scheduler's kernels, which it knows by name. */
#ifndef GBPF_SHIM_KERNEL_KERNEL_HANDLE_H
#define GBPF_SHIM_KERNEL_KERNEL_HANDLE_H

#include <stdint.h>
#include <stdio.h>

#include "shim/object/thread_cache.h"
#include "shim/part.h"

struct ptx_pointers;
struct shim_clone;

extern const struct shim_part shim_kernel_part;

enum shim_kernel_kind {
	SHIM_KERNEL_OF_MODULE,	/* a CUfunction; its owner is a module */
	SHIM_KERNEL_OF_LIBRARY, /* a CUkernel; its owner is a library */
	SHIM_KERNEL_FUNCTION,	/* a CUfunction of a library's kernel; its owner is the library */
};

/* What is known of a CUfunction or CUkernel. Ends with its module or library. */
struct shim_kernel {
	const void *handle;
	/* How the program got it; shim_kernels_mutex. */
	const void *owner; /* module or library; NULL: it never got it through the shim */
	enum shim_kernel_kind kind;
	uint32_t probes; /* tools that were attached then */
	uint64_t load;	 /* of the owner's image; 0: not known */
	char *name;	 /* NULL: it did not, or the owner is being unloaded */
	bool stale;	 /* the driver may have given the handle to another kernel since */
	/* Owned; NULL: it is not known which memory the kernel can access. */
	struct ptx_pointers *pointers;
	/* Found when it is launched. */
	struct sched_kernel *counted; /* [atomic] NULL: not yet, or it has no name */
	struct shim_clone *clone;     /* [atomic] NULL: not yet, or the context has ended */
};

/* Returns what is known of a CUfunction or CUkernel that is launched, until its module or library
 * is unloaded; looks it up at the thread's first launch. */
static inline const struct shim_kernel *shim_kernel_of(struct shim_thread *t, const void *handle);
/* Returns the scheduler's kernel of an executable graph that is launched; NULL: there is no memory.
 */
static inline struct sched_kernel *shim_kernel_of_graph(struct shim_thread *t, const void *exec);

/* Records the name by which a handle was requested (older drivers do not report it) and the
 * handle's owner. name is copied. */
void shim_kernel_note(const void *handle, const char *name, const void *owner,
		      enum shim_kernel_kind kind);
struct shim_kernel_origin {
	const void *owner;
	enum shim_kernel_kind kind;
	uint32_t probes; /* tools that had been attached when the program got it */
	uint64_t load;	 /* of the owner's image; 0: not known */
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
/* What is known of a handle, without waiting: the caller may hold locks that come after that of
 * kernels. *ret_pointers is filled if ret->known. Returns false if it would wait. */
struct shim_kernel_glance;
bool shim_kernel_glance(const void *handle, struct shim_kernel_glance *ret,
			struct ptx_pointers *ret_pointers);
/* Asks the driver for an attribute of f on the current device; library: f is a CUkernel. */
CUresult shim_kernel_attribute(int *ret, CUfunction_attribute what, CUfunction f, bool library);

extern struct shim_kernel shim_kernel_none; /* there is no memory, or the handle is NULL */
const struct shim_kernel *shim_kernel_look_up(struct shim_thread *t, const void *handle);
struct sched_kernel *shim_kernel_look_up_graph(struct shim_thread *t, const void *exec);

static inline const struct shim_kernel *shim_kernel_of(struct shim_thread *t, const void *handle)
{
	const struct shim_thread_kernel *e = shim_thread_find(t, (uintptr_t)handle);

	return likely(e && e->kernel) ? e->kernel : shim_kernel_look_up(t, handle);
}

static inline struct sched_kernel *shim_kernel_of_graph(struct shim_thread *t, const void *exec)
{
	const struct shim_thread_kernel *e =
		shim_thread_find(t, (uintptr_t)exec | SHIM_THREAD_GRAPH);

	return likely(e && e->graph) ? e->graph : shim_kernel_look_up_graph(t, exec);
}

#endif
