/* Parts of the shim: what each that has records of the program's objects does when these end. The
 * list is in entry/parts.c. */
#ifndef GBPF_SHIM_PART_H
#define GBPF_SHIM_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"

/* Members may be NULL. The caller holds no lock. */
struct shim_part {
	bool if_attached; /* the ends are of interest to it, and its locks may be taken, only in an
			     attached process */
	/* A module or library is about to be unloaded, after which the driver may reuse its handle
	 * and those of its kernels at once. unloaded() gets the result; gone: the driver has
	 * unloaded it. */
	uint64_t (*unloading)(const void *owner);
	void (*unloaded)(const void *owner, uint64_t before, bool gone);
	/* A context, not NULL, may be about to end, with all that is in it. context_ended() gets
	 * the result; gone: it has ended, and what other threads have done in it since belongs to
	 * none, or to a new context with the same handle. */
	uint64_t (*context_ending)(CUcontext ctx);
	void (*context_ended)(CUcontext ctx, uint64_t before, bool gone);
	/* The same for a part that only forgets what belongs to the context: before its end, and
	 * again once it is gone, since other threads may have used it meanwhile. */
	void (*context_forget)(CUcontext ctx);
	/* In a forked child, which is no longer attached, and in which another thread of the parent
	 * may have left a lock taken or a table half changed. What is in the driver belongs to the
	 * parent. */
	void (*child)(void);
};

#endif
