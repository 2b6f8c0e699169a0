/* What the files of this room share: the device, and calls with a context made current. */
#ifndef GBPF_GPU_GPU_INT_H
#define GBPF_GPU_GPU_INT_H

#include <pthread.h>
#include <stdbool.h>

#include "gpu/gpu.h"

#define GPU_MAX_CONTEXTS 256u

struct gpu_event;

struct gpu_context {
	CUcontext ctx;		    /* NULL: free entry */
	uint64_t generation;	    /* grows when the context ends */
	struct gpu_event *returned; /* pushed by any thread */
	uint32_t take_lock;	    /* tried, never waited for */
	struct gpu_event *ready;    /* under take_lock */
};

struct gpu_device {
	const struct cuabi_table *real; /* borrowed */
	struct gpu_runs *runs;		/* chain.c's; NULL: none yet */
	struct gpu_leases *leases;	/* lease.c's */
	pthread_mutex_t lock;		/* new entries, ended contexts, flag_why */
	struct gpu_clock *clocks;	/* clock.c's; under lock */
	uint64_t contexts_gone;		/* under lock */
	char flag_why[160];		/* flag.c's */
	uint32_t n_contexts;
	struct gpu_context contexts[GPU_MAX_CONTEXTS];
};

/* The context is current between gpu_begin (0 or -EIO) and gpu_end, for calls that allocate or
 * synchronize: a capture that another thread of the application has begun neither forbids them nor
 * is spoilt by them. */
struct gpu_scope {
	bool pushed;
	CUstreamCaptureMode mode;
};
int gpu_scope_enter(struct gpu_device *d, CUcontext ctx, struct gpu_scope *ret);
void gpu_scope_leave(struct gpu_device *d, const struct gpu_scope *s);
/* A stream that waits for no other, of the greatest priority, in the current context. */
CUresult gpu_private_stream(struct gpu_device *d, CUstream *ret);

/* clock.c: what it keeps of that context is gone with it. d->lock is held. */
void gpu_clock_forget_context(struct gpu_device *d, CUcontext ctx);
void gpu_clock_forget_all(struct gpu_device *d);

#endif
