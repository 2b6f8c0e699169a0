/* What one thread remembers, so that the launch path takes no lock: which queue a stream is, which
 * kernel a function is. */
#ifndef GBPF_SHIM_OBJECT_THREAD_CACHE_H
#define GBPF_SHIM_OBJECT_THREAD_CACHE_H

#include "shim/shim.h"

#define THREAD_QUEUES 64u
#define THREAD_KERNELS 4096u /* frameworks use hundreds; untouched pages cost nothing */

struct shim_queue;
struct twin;

struct thread_kernel {
	uintptr_t key; /* 0: free */
	struct sched_kernel *k;
	struct twin *twin; /* NULL: none */
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
	} queues[THREAD_QUEUES];
	struct thread_kernel kernels[THREAD_KERNELS];
};

extern TLS_FAST struct shim_thread *thread_known;

/* Makes the calling thread's memory; NULL: none. */
struct shim_thread *thread_make(void);
void thread_setup(void); /* once, before the first thread_make */

static inline struct shim_thread *thread_self(void)
{
	return likely(thread_known) ? thread_known : thread_make();
}

#endif
