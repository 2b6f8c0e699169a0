/* What one thread remembers, so that the launch path takes no lock: which queue a stream is, which
 * kernel a function is. */
#ifndef GBPF_SHIM_OBJECT_THREAD_CACHE_H
#define GBPF_SHIM_OBJECT_THREAD_CACHE_H

#include "shim/shim.h"

#define SHIM_THREAD_QUEUES 64u
#define SHIM_THREAD_KERNELS 4096u /* frameworks use hundreds; untouched pages cost nothing */

struct shim_queue;
struct shim_clone;

struct shim_thread_kernel {
	uintptr_t key; /* 0: free */
	struct sched_kernel *k;
	struct shim_clone *clone; /* NULL: none */
};

struct shim_thread {
	uint32_t queue_generation, kernel_generation;
	uint32_t host_function; /* inside a host function's callback */
	struct {
		CUcontext ctx;
		struct shim_queue *q;
	} fallback[2]; /* the legacy default stream and the thread's own, as last used */
	struct {
		uintptr_t key;
		struct shim_queue *q;
	} queues[SHIM_THREAD_QUEUES];
	struct shim_thread_kernel kernels[SHIM_THREAD_KERNELS];
};

extern TLS_FAST struct shim_thread *shim_thread_known;

/* Makes the calling thread's memory; NULL: none. */
struct shim_thread *shim_thread_create(void);
void shim_thread_setup(void); /* once, before the first thread_make */

static inline struct shim_thread *shim_thread_self(void)
{
	return likely(shim_thread_known) ? shim_thread_known : shim_thread_create();
}

#endif
