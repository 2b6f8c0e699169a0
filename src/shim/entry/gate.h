/* The gate of all stream-ordered calls: the functions that the generated entry points call while
 * the scheduler is not idle. */
#ifndef GBPF_SHIM_ENTRY_GATE_H
#define GBPF_SHIM_ENTRY_GATE_H

#include "cuabi/api.h"
#include "policy/ctx.h"
#include "shim/object/queue_drain.h"
#include "shim/gated_call.h"

struct shim_block_call;

CUresult shim_gate_launch(const struct shim_call *c, uint64_t *a, uint64_t bytes);
CUresult shim_gate_order(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_kernel(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_kernel_ex(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_cooperative(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_legacy(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_graph(const struct shim_call *c, uint64_t *a);

/* Initializes a launch record. Field by field, because clearing it as a whole costs more than the
 * rest of the gate. */
static inline void shim_gate_record_init(struct sched_launch *l, uint32_t kind)
{
	l->kernel = NULL;
	l->blocks = l->bytes = 0;
	l->kind = kind;
	l->flags = l->threads = l->smem_bytes = 0;
	l->may_hold = true;
	l->block_ok = l->granted = l->behind = l->unprepared = false;
	l->piece_blocks = l->resident = 0;
	l->block_ns = 0;
	l->level = l->stop = l->gate_mode = 0;
	l->version = l->est_ns = l->held_ns = l->begin_ns = 0;
}

/* Submits a launch whose record is filled, on the given stream: now, at block level, or as a
 * deferred call. b: it can run at block level; NULL: it cannot. */
CUresult shim_gate_submit(const struct shim_call *c, uint64_t *a, struct sched_launch *l,
			  CUstream stream, struct shim_block_call *b);

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
