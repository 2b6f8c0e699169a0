/* The gate of all stream-ordered calls: the functions that the generated entry points call while
 * the scheduler is not idle. */
#ifndef GBPF_SHIM_ENTRY_GATE_H
#define GBPF_SHIM_ENTRY_GATE_H

#include "cuabi/api.h"
#include "policy/ctx.h"
#include "shim/shim.h"

#define SHIM_MAX_ARGS 12
#define SHIM_ORDER 255u /* kind of a call that is ordered but no launch */

enum shim_copy_rule {
	SHIM_COPY_WAIT,	 /* cannot be kept: what is before it is issued, then it runs */
	SHIM_COPY_EARLY, /* may come earlier than what is before it */
	SHIM_COPY_PLAIN,
	SHIM_COPY_SRC,
	SHIM_COPY_DST,
	SHIM_COPY_UVA,
	SHIM_COPY_DEVICE,
	SHIM_COPY_COPY2D,
	SHIM_COPY_COPY3D,
	SHIM_COPY_ARRAY,
	SHIM_COPY_BATCH,
	SHIM_COPY_RECORD,
	SHIM_COPY_AWAIT,
	SHIM_COPY_KERNEL,
	SHIM_COPY_KERNELEX,
};

struct shim_block_call;

struct shim_call {
	CUresult (*run)(const uint64_t *a); /* calls the real function */
	uint16_t index;			    /* CUABI_IDX_* */
	uint8_t nargs;
	int8_t stream;	    /* argument that is the stream; -1: the default stream */
	uint8_t per_thread; /* the default stream is the thread's own */
	uint8_t blocking;   /* returns when the work is done (sync:*) */
	uint8_t drains;	    /* returns when everything before it in the stream is done too */
	uint8_t kind;	    /* GBPF_KIND_* or SHIM_ORDER */
	uint8_t copy_rule;  /* enum shim_keep */
	uint8_t copy_arg[2];
};

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
	l->block_ok = l->owns = false;
	l->piece_blocks = l->resident = 0;
	l->block_ns = 0;
	l->level = 0;
	l->version = l->est_ns = l->held_ns = l->begin_ns = 0;
	l->sample.event = NULL;
	l->phase = 0;
}

/* Submits a launch whose record is filled, on the given stream: now, at block level, or as a
 * deferred call. b: it can run at block level; NULL: it cannot. */
CUresult shim_gate_submit(const struct shim_call *c, uint64_t *a, struct sched_launch *l,
			  CUstream stream, struct shim_block_call *b);

/* Issues everything that is kept back. */
void shim_drain_all(void);
/* The same, at the price of one load while there is nothing. */
static inline void shim_drain_pending(void)
{
	if (unlikely(shim_pending())) {
		shim_drain_all();
	}
}

/* Extents with saturation: a wrong extent is the driver's to refuse. */
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
