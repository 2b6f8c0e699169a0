/* The scheduler's device operations on a driver table. Markers are timed events of the queue's
 * context, kept in pools. CUresult is used in this room and its callers' tables only, never in
 * sched. */
#ifndef GBPF_GPU_GPU_H
#define GBPF_GPU_GPU_H

#include "cuabi/table.h"
#include "sched/device.h"

struct gpu_device;
struct gpu_run;

/* The dev_queue of sched_queue_open; the shim keeps it until sched_queue_close has returned. */
struct gpu_queue {
	CUstream stream; /* a created stream, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD */
	CUcontext ctx;
	const void *home; /* CU_STREAM_PER_THREAD: gpu_thread() of the only thread that can name it;
			     else NULL */
	CUcontext base; /* context of the markers, where ctx is a green context, which is current to
			   one thread only; NULL: ctx */
	struct gpu_run *run; /* [atomic] owned; NULL before the first launch at block level */
};

/* Returns 0 or -ENOMEM. real is borrowed until destroy; every entry that is used must be callable
 * (a stub that fails suffices). */
int gpu_device_create(struct gpu_device **ret, const struct cuabi_table *real);
/* Frees events' bookkeeping without calling the driver, which may be unloaded already. */
void gpu_device_destroy(struct gpu_device *d);

/* dev: struct gpu_device; dev_queue: struct gpu_queue. */
extern const struct sched_device_ops gpu_sched_ops;

/* Called when the context is about to be destroyed or reset. Its queues are closed; its events end
 * with it. */
void gpu_context_forget(struct gpu_device *d, CUcontext ctx);

/* Returns a value that identifies the calling thread while it exists. */
const void *gpu_thread(void);

#endif
