/* The scheduler's device operations on a driver table: markers are timed events of the queue's
 * context, kept in a pool. CUresult goes no further than this room. */
#ifndef GBPF_GPU_GPU_H
#define GBPF_GPU_GPU_H

#include "cuabi/table.h"
#include "sched/device.h"

struct gpu_device;
struct gpu_run;

/* What sched_queue_open gets as dev_queue; the shim keeps it until sched_queue_close has returned.
 */
struct gpu_queue {
	CUstream stream; /* a created one, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD */
	CUcontext ctx;
	const void *home; /* of CU_STREAM_PER_THREAD: gpu_thread() of its thread, which alone can
			     name it; else NULL */
	CUcontext base;	  /* that ctx stands for, and markers are of: ctx is current to one thread
			     only (a green context); NULL: ctx itself */
	struct gpu_run *run; /* gpu_run.c's; NULL: nothing was launched at block level */
};

/* real is borrowed until destroy; every entry that is used must be callable (a stub that fails is
 * fine). 0 or -ENOMEM. */
int gpu_device_create(struct gpu_device **ret, const struct cuabi_table *real);
/* Forgets events without calling the driver, which may be gone by then. */
void gpu_device_destroy(struct gpu_device *d);

/* dev: struct gpu_device, dev_queue: struct gpu_queue */
extern const struct sched_device_ops gpu_sched_ops;

/* The context is about to be destroyed or reset: its queues are closed; its events go with it. */
void gpu_context_forget(struct gpu_device *d, CUcontext ctx);

/* Identifies the calling thread while it lives. */
const void *gpu_thread(void);

#endif
