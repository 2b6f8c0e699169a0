/* Twins of functions: f$gbpf beside f, with what a launch of it must know. */
#ifndef GBPF_SHIM_OBJECT_CLONE_H
#define GBPF_SHIM_OBJECT_CLONE_H

#include "ptx/block.h"
#include "shim/object/kernel_handle.h"

struct shim_clone {
	const void *owner;		     /* module or library */
	CUcontext ctx;			     /* of the functions; NULL: a kernel's */
	CUfunction of;			     /* f, CUfunction or CUkernel */
	CUfunction handle;		     /* f$gbpf, likewise; NULL: none */
	const struct ptx_block_entry *entry; /* the owner's */
	enum shim_kernel_kind kind;
	uint64_t id;		 /* handles are used again, this is not */
	uint32_t max_smem_bytes; /* [atomic] dynamic shared memory it may be given */
	uint64_t occupancy;   /* [atomic] last shape of a launch whose occupancy was asked, and the
			       * answer
			       */
	uint8_t why;	      /* enum ptx_block_why */
	uint8_t excluded;     /* [atomic] excluded */
	uint8_t reported_why; /* [atomic] what the statistics say */
};

/* The twin of a function handle; NULL: none, and why. Locks; for a thread's first launch. The
 * owner's context is current. */
struct shim_clone *shim_clone_find(const void *handle, enum proto_block_why *ret_why);
/* The record of a handle with or without a twin; NULL: the handle did not come through here. */
struct shim_clone *shim_clone_get(const void *handle);
/* That twin's blocks were found waiting for later ones: it is not launched any more. */
void shim_clone_exclude(CUfunction clone);
/* A property of the owner's functions was changed by the program: theirs follow. handle NULL: all
 * of the owner's. */
void shim_clone_refresh(const void *owner, const void *handle);
/* The context ends, and its modules and functions with it. */
void shim_clone_context_end(CUcontext ctx);
/* The owner is gone. */
void shim_clone_forget(const void *owner);

/* How many blocks the device holds at once of a launch with so many threads a block and so much
 * dynamic shared memory; 0: not as many as of f. */
uint32_t shim_clone_resident(struct shim_clone *t, uint32_t threads, uint32_t smem);

#endif
