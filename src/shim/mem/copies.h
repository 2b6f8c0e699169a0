/* Copies of pageable memory by the pipelined plan (mem/copy_plan.h, docs/MEMORY.md). */
#ifndef GBPF_SHIM_MEM_COPIES_H
#define GBPF_SHIM_MEM_COPIES_H

#include <stdbool.h>

#include "cuabi/types.h"
#include "mem/copy_plan.h"

#define SHIM_COPIES_MIN_BYTES ((size_t)8 << 20) /* shortest copy for which the plan is used */

/* Exchanges the slots of the copies concerned, which are counted from then on. The plan is used
 * unless GBPF_COPY=driver is set or the system lacks what it needs. Called once, before cuInit
 * returns. */
void shim_copies_install(void);
/* At exit, before the driver's exit handlers, which may unmap pinned memory: ends running copies
 * with CUDA_ERROR_DEINITIALIZED and waits until they have left their pieces, at most a second. */
void shim_copies_exit(void);
/* In a child after fork: the helpers and pieces belong to the parent. */
void shim_copies_forget(void);

/* Before the driver ends a context: ends the running copies in it with an error, waits until they
 * have left, and lets no copy begin. Then, after the driver's call: has it ended? */
void shim_copies_context_ending(CUcontext ctx);
void shim_copies_context_ended(CUcontext ctx, bool gone);

/* ---- for the files of this folder ---- */

/* Returns true if the plan is used in this process. */
bool shim_copies_planned(void);

/* A context in which copies run. */
struct shim_copy_context {
	CUcontext ctx;		  /* NULL: unused */
	unsigned long long id;	  /* the driver's, never used twice; 0: not known yet */
	struct mem_pieces pieces; /* initialized while id is set */
	uint32_t running;	  /* copies that use it */
	uint32_t ending;	  /* [atomic], written under the mutex */
};

/* Returns the entry of a context until shim_copy_context_leave(); NULL: it ends, or there are too
 * many. */
struct shim_copy_context *shim_copy_context_enter(CUcontext ctx, unsigned long long id);
void shim_copy_context_leave(struct shim_copy_context *c);
/* Ends all of them: see shim_copies_exit(). */
void shim_copy_contexts_exit(void);

#endif
