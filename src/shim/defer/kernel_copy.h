/* Copies of kernel launches, and what all copies have in common. */
#ifndef GBPF_SHIM_DEFER_KERNEL_COPY_H
#define GBPF_SHIM_DEFER_KERNEL_COPY_H

#include "shim/defer/block_launch.h"
#include "shim/object/event_uses.h"
#include "shim/entry/gate.h"

struct shim_deferred_call {
	struct sched_call call; /* first: sched hands this back */
	const struct shim_call *what;
	CUcontext ctx;
	struct shim_queue *q;
	struct shim_block_call block; /* twin NULL: it cannot go at block level */
	struct shim_event_call event; /* recorded or waited for by it */
	uint64_t a[SHIM_MAX_ARGS];
	unsigned char blob[] ALIGNED(16); /* what arguments point to */
};

/* The arguments, and room for what they point to. NULL: no memory. */
struct shim_deferred_call *shim_deferred_new(const struct shim_call *c, const uint64_t *a,
					     size_t blob_bytes);

/* NULL: the parameters cannot be copied (layout not told, attributes with results, no memory). */
struct shim_deferred_call *shim_copy_kernel(const struct shim_call *c, const uint64_t *a);
/* The driver would not refuse it for its number of blocks. */
bool shim_cooperative_fits(const struct shim_queue *q, CUfunction f, const struct sched_launch *l);
struct shim_deferred_call *shim_copy_kernel_ex(const struct shim_call *c, const uint64_t *a);

#endif
