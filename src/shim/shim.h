/* What the shim's files share: the real library's functions, the process's scheduler, and the
 * counters that let a call see with one load that nothing stands in its way. */
#ifndef GBPF_SHIM_SHIM_H
#define GBPF_SHIM_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "cuabi/table.h"
#include "sched/sched.h"

/* The real library, one pointer for each name of cuabi. Until it is loaded each leads to
 * shim_resolve, so calling through it is right at any time; a name that it lacks answers
 * CUDA_ERROR_NOT_FOUND. */
extern struct cuabi_table shim_real;

/* The shim's own entries by index; NULL for plain jumps, where the real function serves as well. */
extern void *const shim_exports[CUABI_COUNT];

struct shim_state {
	struct sched *sched; /* never NULL: an idle one until the process attaches, then for good */
	uint32_t attached;   /* there is a session, and this is no forked child (relaxed) */
	uint32_t deferred;   /* calls that are kept back now: none means that the driver has all */
	uint32_t captures;   /* stream captures that are open now (relaxed) */
	uint32_t queue_generation;  /* grows when a queue is closed: caches of threads are void */
	uint32_t kernel_generation; /* the same for function handles */
	int error; /* first error of a deferred call, for the next synchronization; 0 none */
};
extern struct shim_state shim;

static inline bool shim_attached(void)
{
	return load_relaxed(&shim.attached) != 0;
}

/* Something is kept back, so what is ordered behind it must not overtake. */
static inline bool shim_pending(void)
{
	return load_acquire(&shim.deferred) != 0;
}

/* Loads the real library when needed and returns its function at that index; called by the entries.
 */
void *shim_resolve(unsigned index);

#endif
