/* Per-thread cache of queues and kernels by handle, so that the launch path takes no lock. */
#ifndef GBPF_SHIM_OBJECT_THREAD_CACHE_H
#define GBPF_SHIM_OBJECT_THREAD_CACHE_H

#include "shim/shim.h"

#define SHIM_THREAD_QUEUES 64u
#define SHIM_THREAD_GRAPHS 256u
#define SHIM_THREAD_KERNELS 4096u /* frameworks use hundreds; untouched pages cost nothing */

/* Returns the place of a handle among that many, at most 4096. */
static inline unsigned shim_thread_slot(uintptr_t key, unsigned slots)
{
	return (unsigned)(key * 0x9e3779b97f4a7c15u >> 52) % slots;
}

struct shim_queue;
struct shim_clone;
struct cubin_kernel;
struct shim_probe_kernel;
struct shim_probe_exec;
struct ptx_gate_arg;

struct shim_thread_kernel {
	uintptr_t key; /* 0: free */
	struct sched_kernel *k;
	struct shim_clone *clone; /* NULL: none */
};

struct shim_thread {
	uint32_t queue_generation, kernel_generation, code_generation, probe_generation;
	uint32_t host_function; /* depth of host-function callbacks on this thread: what they call
				   is never held */
	struct shim_probe_choice {
		uintptr_t handle; /* whose launch is under way and was counted; 0: none */
		bool taken;	  /* it takes its probed form */
	} probe_choice;
	uint32_t deferred; /* depth of deferred calls that this thread submits, which may
			      hold up others */
	uint32_t brackets; /* launched with the present call and not counted yet */
	const struct ptx_gate_arg *stub_arg; /* of the patched kernel that is launched now; NULL:
						all zero */
	struct {
		CUcontext ctx;
		struct shim_queue *q;
	} fallback[2]; /* by enum shim_queue_kind: the legacy default stream and the per-thread one,
			  as last used */
	struct {
		uintptr_t key;
		struct shim_queue *q;
	} queues[SHIM_THREAD_QUEUES];
	struct shim_thread_kernel kernels[SHIM_THREAD_KERNELS];
	struct shim_thread_code {
		uintptr_t key;			   /* 0: free */
		const struct cubin_kernel *kernel; /* NULL: its code is the program's own */
	} codes[SHIM_THREAD_KERNELS];
	struct shim_thread_probe {
		uintptr_t key;			  /* 0: free */
		struct shim_probe_kernel *kernel; /* NULL: no tool matches it */
	} probes[SHIM_THREAD_KERNELS];
	struct shim_probe_exec *graphs[SHIM_THREAD_GRAPHS];
};

extern TLS_FAST struct shim_thread *shim_thread_known;

/* Creates the calling thread's cache; NULL: out of memory, or before shim_thread_setup(). */
struct shim_thread *shim_thread_create(void);
void shim_thread_setup(void); /* once, before the first shim_thread_create() */

static inline struct shim_thread *shim_thread_self(void)
{
	return likely(shim_thread_known) ? shim_thread_known : shim_thread_create();
}

#endif
