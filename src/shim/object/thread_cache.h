/* Per-thread cache of queues, and of what each room knows of kernels, by handle, so that the launch
 * path takes no lock. */
#ifndef GBPF_SHIM_OBJECT_THREAD_CACHE_H
#define GBPF_SHIM_OBJECT_THREAD_CACHE_H

#include "shim/shim.h"

#define SHIM_THREAD_QUEUES 64u
#define SHIM_THREAD_GRAPHS 256u
#define SHIM_THREAD_KERNELS 2048u /* frameworks use hundreds; untouched pages cost nothing */
#define SHIM_THREAD_WAYS 4u	  /* places among which a kernel's handle may have its entry */

/* Returns the place of a handle among that many, at most 4096 and a power of two. */
static inline unsigned shim_thread_slot(uintptr_t key, unsigned slots)
{
	return (unsigned)(key * 0x9e3779b97f4a7c15u >> 52) % slots;
}

struct shim_queue;
struct shim_kernel;
struct cubin_kernel;
struct shim_probe_kernel;
struct shim_probe_exec;

/* Handles are aligned, so this bit in a key distinguishes a graph from a function at its address.
 */
#define SHIM_THREAD_GRAPH ((uintptr_t)1)

/* What is known of a CUfunction, CUkernel or executable graph. A room fills its member when it is
 * first asked about the handle; NULL: it was not yet. Where the answer is that there is nothing,
 * the member points to a struct of the room that says so. */
struct shim_thread_kernel {
	uintptr_t key; /* 0: free */
	union {	       /* kernel/: what is launched */
		struct shim_kernel *kernel;
		struct sched_kernel *graph; /* the key has SHIM_THREAD_GRAPH */
	};
	const struct cubin_kernel *code; /* code/: &shim_code_own */
	struct shim_probe_kernel *probe; /* probe/ */
};

struct shim_thread {
	uint32_t queue_generation, kernel_generation; /* of what is cached */
	uint32_t victim;	/* counts the entries of kernels that were given up */
	uint32_t host_function; /* depth of host-function callbacks on this thread: what they call
				   is never held */
	uint32_t deferred;	/* depth of deferred calls that this thread submits, which may
				   hold up others */
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

struct shim_thread_kernel *shim_thread_find_near(struct shim_thread *t, uintptr_t key,
						 unsigned slot);

/* Returns the entry of a key, until the next call that may fill one; NULL: there is none, or it may
 * have become wrong. Key 0 has a free entry, or none. */
static inline struct shim_thread_kernel *shim_thread_find(struct shim_thread *t, uintptr_t key)
{
	unsigned slot = shim_thread_slot(key, SHIM_THREAD_KERNELS);

	if (unlikely(t->kernel_generation != load_acquire(&shim.kernel_generation))) {
		return NULL;
	}
	return likely(t->kernels[slot].key == key) ? &t->kernels[slot]
						   : shim_thread_find_near(t, key, slot);
}

/* To fill a member: begin, ask the room's table, then take the entry and store the answer. Begin
 * clears what may have become wrong, and returns the generation that the answer belongs to. */
uint32_t shim_thread_fill_begin(struct shim_thread *t);
/* Returns the key's entry, or one that it takes from another key. NULL: the cache is of a later
 * generation, so the answer is not kept. key is not 0. */
struct shim_thread_kernel *shim_thread_fill(struct shim_thread *t, uintptr_t key,
					    uint32_t generation);

#endif
