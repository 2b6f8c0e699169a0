/* Linear copies between host memory and the device: by the pipelined plan (mem/copy_plan.h), the
 * direct plan (mem/direct.h), or the driver (docs/MEMORY.md). */
#ifndef GBPF_SHIM_MEM_COPIES_H
#define GBPF_SHIM_MEM_COPIES_H

#include <stdbool.h>

#include "cuabi/types.h"
#include "gpu/copy_device.h"
#include "mem/copy_plan.h"
#include "sched/sched.h"
#include "shim/part.h"

#define SHIM_COPIES_MIN_BYTES ((size_t)8 << 20) /* shortest copy for which the plan is used */

/* Exchanges the slots of the copies concerned, which are counted from then on. The plans are used
 * as GBPF_COPY says, and if the system has what they need. Called once, before cuInit returns. */
void shim_copies_install(void);
/* At exit, before the driver's exit handlers, which may unmap pinned memory: ends running copies
 * with CUDA_ERROR_DEINITIALIZED and waits until they have left their pieces, at most a second. */
void shim_copies_exit(void);
/* Before fork, and after it in the parent: between them no device memory is mapped. */
void shim_copies_before_fork(void);
void shim_copies_after_fork(void);
/* When a context is about to end, the running copies in it end with an error and are waited for,
 * and no copy begins until it has ended. In a forked child the helpers and pieces belong to the
 * parent. */
extern const struct shim_part shim_copies_part;

/* ---- for the files of this folder ---- */

uint64_t shim_copy_context_ending(CUcontext ctx);
void shim_copy_context_ended(CUcontext ctx, uint64_t before, bool gone);

/* Returns true if the pipelined plan is used in this process. */
bool shim_copies_planned(void);

/* A context in which copies run. */
struct shim_copy_context {
	CUcontext ctx;		  /* NULL: unused */
	unsigned long long id;	  /* the driver's, never used twice; 0: not known yet */
	struct mem_pieces pieces; /* initialized while id is set */
	uint32_t placed;	  /* [atomic], written under the mutex: the pieces' node is set */
	uint32_t running;	  /* copies that use it */
	uint32_t ending;	  /* [atomic], written under the mutex */
};

/* Returns the entry of a context until shim_copy_context_leave(); NULL: it ends, or there are too
 * many. */
struct shim_copy_context *shim_copy_context_enter(CUcontext ctx, unsigned long long id);
void shim_copy_context_leave(struct shim_copy_context *c);
/* Sets the node of the context's pieces, before the first of them is made. */
void shim_copy_context_place(struct shim_copy_context *c);
/* Ends all of them: see shim_copies_exit(). */
void shim_copy_contexts_exit(void);

/* A copy as the program makes it. */
struct shim_copy_request {
	enum mem_copy_way way;
	CUdeviceptr device;
	void *host;
	size_t bytes;
	struct gpu_copy_queue queue;
	bool blocking;
};

/* Returns whether an attribute of the memory at an address has that value. */
bool shim_copy_attribute_is(CUpointer_attribute what, CUdeviceptr address, int wanted);
/* Returns the current context, NULL if there is none or it is a green one. */
CUcontext shim_copy_current_context(void);
/* Returns true if the stream is one of the context. */
bool shim_copy_is_of_context(CUstream stream, CUcontext ctx);
/* Returns the current context's entry if the copy, whose host side is fit for it, can be made in
 * pieces: until shim_copy_context_leave(). */
struct shim_copy_context *shim_copy_admit(const struct shim_copy_request *r);
/* Returns 0, or the error with which a copy in pieces must end now. */
int shim_copy_may_go_on(const struct shim_copy_context *context, const struct gpu_copy_queue *q);
/* As issue of struct mem_device_ops; refuses a stream that is captured, and counts the bytes. */
int shim_copy_issue(void *dev, void *queue, enum mem_copy_way way, struct mem_piece *p,
		    uint64_t device, size_t bytes);
/* Makes the whole copy by the driver's function. */
CUresult shim_copy_by_driver(const struct shim_copy_request *r);

/* ---- copy_turns.c ---- */

/* Returns whether the policy is asked about the copy, and prepares *ret for it. It is not asked
 * during a capture, in a host function, or for a call that was deferred: these must not wait. */
bool shim_copy_is_decided(const struct shim_copy_request *r, struct sched_copy *ret);
/* Waits until a copy that is not cut may go. */
void shim_copy_await_turn(struct sched_copy *c);
/* Waits a moment before the policy is asked again; since_ns: when the wait began. */
void shim_copy_pause(uint64_t since_ns);

/* ---- direct_copies.c ---- */

/* Begins with the direct plan, if this machine has what it needs. Once, before cuInit returns. */
void shim_copy_direct_begin(void);
void shim_copy_direct_exit(void); /* as shim_copies_exit() */
void shim_copy_direct_before_fork(void);
void shim_copy_direct_after_fork(void);
void shim_copy_direct_forget(void); /* in a child after fork */
/* Largest copies for which the plan may be used, by way; 0: not at all. [atomic] */
extern uint32_t shim_copy_direct_most[2];
/* Makes a small copy by the direct plan, if all work before it is done and the device's memory is
 * mapped; or has the driver make it, to know how long that takes. Returns false if the copy has not
 * been made. */
bool shim_copy_direct(const struct shim_copy_request *r, CUresult *ret);

/* ---- pinned_copies.c ---- */

/* Cuts a copy of page-locked memory into pieces, in the order of the stream, as the policy wants
 * it. Returns false if the copy is not one that can be cut: nothing is issued then. A copy of
 * which a piece is held, or exceeds what the policy allows to be unfinished, blocks the caller
 * until its last piece is issued; any other returns like the driver's. */
bool shim_copy_pinned(const struct shim_copy_request *r, struct sched_copy *c, CUresult *ret);

#endif
