/* The device, and calls with a context made current; for the files of this room. */
#ifndef GBPF_GPU_GPU_INT_H
#define GBPF_GPU_GPU_INT_H

#include <stdbool.h>

#include "base/lock.h"
#include "gpu/gpu.h"

#define GPU_MAX_CONTEXTS 256u

struct gpu_event;

struct gpu_context {
	CUcontext ctx;	     /* NULL: free entry */
	uint64_t generation; /* [atomic] incremented when the context ends */
	uint32_t take_lock;  /* [atomic] tried for a bounded time only */
	struct gpu_events {
		struct gpu_event *returned; /* [atomic] stack; pushed by any thread */
		struct gpu_event *ready;    /* under take_lock */
	} events[2];			    /* without and with times */
};

struct gpu_device {
	const struct cuabi_table *real; /* borrowed */
	struct gpu_runs *runs; /* [atomic] owned by gpu_run_memory.c; NULL before the first run */
	struct gpu_leases *leases; /* owned by flag_lease.c */
	struct lock lock;	   /* new entries, ended contexts, clocks, flag_why */
	struct gpu_clock *clocks;  /* owned by gpu_clock.c; under lock */
	uint64_t contexts_gone;	   /* number of contexts that have ended; under lock */
	char flag_why[160];	   /* reason of the last failure in flag.c; under lock */
	uint32_t n_contexts;
	struct gpu_context contexts[GPU_MAX_CONTEXTS];
};

/* gpu_scope_enter makes the context current until gpu_scope_leave, for calls that allocate or
 * synchronize. A stream capture of another thread neither forbids these calls nor is invalidated by
 * them. Returns 0 or -EIO. */
struct gpu_scope {
	bool pushed;
	CUstreamCaptureMode mode;
};
int gpu_scope_enter(struct gpu_device *d, CUcontext ctx, struct gpu_scope *ret);
void gpu_scope_leave(struct gpu_device *d, const struct gpu_scope *s);
/* Creates a non-blocking stream of the greatest priority in the current context. */
CUresult gpu_private_stream(struct gpu_device *d, CUstream *ret);

/* gpu_clock.c: frees what belongs to that context, or everything. */
void gpu_clock_forget_context(struct gpu_device *d, CUcontext ctx) REQUIRES(d->lock);
void gpu_clock_forget_all(struct gpu_device *d);

#endif
