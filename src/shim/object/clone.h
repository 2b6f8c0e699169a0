/* Twins of functions: f$gbpf beside f, with what a launch of it must know. */
#ifndef GBPF_SHIM_OBJECT_CLONE_H
#define GBPF_SHIM_OBJECT_CLONE_H

#include "ptx/block.h"
#include "shim/object/kernel_handle.h"

struct twin {
	const void *owner;		     /* module or library */
	CUcontext ctx;			     /* of the functions; NULL: a kernel's */
	CUfunction of;			     /* f, CUfunction or CUkernel */
	CUfunction handle;		     /* f$gbpf, likewise; NULL: none */
	const struct ptx_block_entry *entry; /* the owner's */
	enum kernel_kind kind;
	uint64_t id;	    /* handles are used again, this is not */
	uint32_t smem_most; /* [atomic] dynamic shared memory it may be given */
	uint64_t asked; /* [atomic] last shape of a launch whose occupancy was asked, and the answer
			 */
	uint8_t why;	/* enum ptx_block_why */
	uint8_t hung;	/* [atomic] excluded */
	uint8_t told;	/* [atomic] what the statistics say */
};

/* The twin of a function handle; NULL: none, and why. Locks; for a thread's first launch. The
 * owner's context is current. */
struct twin *twin_find(const void *handle, enum ptx_block_why *ret_why);
/* The record of a handle with or without a twin; NULL: the handle did not come through here. */
struct twin *twin_get(const void *handle);
/* That twin's blocks were found waiting for later ones: it is not launched any more. */
void twin_exclude(CUfunction twin);
/* A property of the owner's functions was changed by the program: theirs follow. handle NULL: all
 * of the owner's. */
void twin_refresh(const void *owner, const void *handle);
/* The context ends, and its modules and functions with it. */
void twin_context_gone(CUcontext ctx);
/* The owner is gone. */
void twin_forget(const void *owner);

/* How many blocks the device holds at once of a launch with so many threads a block and so much
 * dynamic shared memory; 0: not as many as of f. */
uint32_t twin_resident(struct twin *t, uint32_t threads, uint32_t smem);

#endif
