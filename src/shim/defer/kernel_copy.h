/* Deferred kernel launches, and what all deferred calls have in common. */
#ifndef GBPF_SHIM_DEFER_KERNEL_COPY_H
#define GBPF_SHIM_DEFER_KERNEL_COPY_H

#include "shim/defer/block_launch.h"
#include "shim/object/event_uses.h"
#include "shim/gated_call.h"

struct shim_deferred_call {
	struct sched_call call; /* must be first: the scheduler passes this */
	const struct shim_call *what;
	CUcontext ctx;
	struct shim_queue *q;
	struct shim_launch launch;    /* its call; with a clone, also how it runs at block level */
	struct shim_event_call event; /* the event that it records or awaits */
	uint64_t a[SHIM_MAX_ARGS];
	unsigned char blob[] ALIGNED(16); /* memory to which the arguments point */
};

/* Allocates a deferred call with the arguments and blob_bytes of room for what they point to. NULL:
 * out of memory. */
struct shim_deferred_call *shim_deferred_new(const struct shim_call *c, const uint64_t *a,
					     size_t blob_bytes);

/* Copies a kernel launch with its parameters. NULL: not possible (unknown layout, attributes that
 * return results, a shape that a device may refuse, out of memory). */
struct shim_deferred_call *shim_copy_kernel(const struct shim_call *c, const uint64_t *a);
/* Returns true if the driver would accept the number of blocks of a cooperative launch. */
bool shim_cooperative_fits(const struct shim_queue *q, CUfunction f, const struct sched_launch *l);
struct shim_deferred_call *shim_copy_kernel_ex(const struct shim_call *c, const uint64_t *a);

#endif
