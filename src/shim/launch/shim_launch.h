/* A launch, from the program's call until the driver has it: described once, by describe.c, for all
 * launch functions. What decides about it and what issues it reads this and nothing else. */
#ifndef GBPF_SHIM_LAUNCH_SHIM_LAUNCH_H
#define GBPF_SHIM_LAUNCH_SHIM_LAUNCH_H

#include "gpu/gpu_run.h"
#include "sched/sched.h"
#include "shim/gated_call.h"
#include "shim/kernel/clone.h"
#include "shim/object/kernel_call.h"

struct shim_probe_form;

/* On the caller's stack; a deferred launch has a copy, with parameters of its own. Members behind
 * `own_clone` may be read only where that is not NULL. Pointers belong to the program, and to the
 * tables of kernels and forms. */
struct shim_launch {
	struct sched_launch record; /* what the scheduler decides with, and the policy sees */
	struct shim_kernel_call
		call;		  /* f NULL: a copy, graph ..., or a launch without parameters */
	struct shim_clone *clone; /* what runs at block level; NULL: it cannot */
	struct shim_probe_form *form; /* held over the decision; NULL: it has no probed form */
	/* The kernel's own, whereas `clone` may be its probed form's. NULL: it has none, or the
	 * launch cannot run at block level: earlier calls have set its block size and parameters,
	 * or it is one of several devices'. */
	struct shim_clone *own_clone;
	uint32_t smem; /* dynamic shared memory in bytes, with that of the probed form */
	/* Of a clone, or machine code with the gate: the attributes that are kept. */
	uint32_t cluster; /* blocks of a cluster; 1: none */
	uint32_t n_attrs;
	CUlaunchAttribute attrs[GPU_BLOCK_ATTRS_MAX];
};

/* Describes a call that is ordered on a stream, of a kind GBPF_KIND_*. Field by field, because
 * clearing it as a whole costs more than the rest of the gate. */
static inline void shim_launch_init(struct shim_launch *l, uint32_t kind, CUstream stream)
{
	struct sched_launch *r = &l->record;

	r->kernel = NULL;
	r->blocks = r->bytes = 0;
	r->kind = kind;
	r->flags = r->threads = r->smem_bytes = 0;
	r->may_hold = true;
	r->block_ok = r->granted = r->behind = r->unprepared = false;
	r->piece_blocks = r->resident = 0;
	r->block_ns = 0;
	r->level = r->stop = r->gate_mode = 0;
	r->version = r->est_ns = r->held_ns = r->begin_ns = 0;
	l->call.f = NULL;
	l->call.brackets = 0;
	l->call.stream = stream;
	l->clone = NULL;
	l->form = NULL;
	l->own_clone = NULL;
}

/* Describe the launch of a kernel from the arguments of cuLaunchKernel and
 * cuLaunchCooperativeKernel, of cuLaunchKernelEx, whose config is not NULL, and of one kernel of
 * several devices. */
void shim_describe_kernel(struct shim_launch *l, const struct shim_call *c, const uint64_t *a);
void shim_describe_kernel_ex(struct shim_launch *l, const struct shim_call *c, const uint64_t *a);
void shim_describe_one_of(struct shim_launch *l, struct shim_thread *t,
			  const CUDA_LAUNCH_PARAMS *p);
/* ... of cuLaunch(f), cuLaunchGrid(f, w, h) and cuLaunchGridAsync(f, w, h, stream). */
void shim_describe_legacy(struct shim_launch *l, const struct shim_call *c, const uint64_t *a);
/* ... and of cuGraphLaunch(graph, stream). */
void shim_describe_graph(struct shim_launch *l, const uint64_t *a);

/* Describe only the call of the former two. */
void shim_describe_call(struct shim_kernel_call *k, const struct shim_call *c, const uint64_t *a);
void shim_describe_call_ex(struct shim_kernel_call *k, const struct shim_call *c,
			   const uint64_t *a);

/* Issues the launch to the driver, of a kernel in the form that it is to have. a: the arguments
 * that it was described from, or their copies. */
CUresult shim_launch_issue(struct shim_launch *l, const struct shim_call *c, const uint64_t *a);
/* The same of a call alone, once kernels may have forms (shim.forms). */
CUresult shim_kernel_issue(struct shim_kernel_call *k);

/* Returns true if the launch is of a function that has a clone or an entry stub, so that it may run
 * at block level, unless it is cooperative. */
static inline bool shim_launch_may_stop(const struct shim_launch *l)
{
	return l->own_clone != NULL;
}

/* Saturating extents: a wrong extent is the driver's to refuse. */
static inline uint64_t shim_extent2d(uint64_t width, uint64_t height)
{
	uint64_t r;

	return checked_mul(width, height, &r) ? UINT64_MAX : r;
}
static inline uint64_t shim_extent3d(uint64_t width, uint64_t height, uint64_t depth)
{
	return shim_extent2d(shim_extent2d(width, height), depth);
}

#endif
